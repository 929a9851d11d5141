"""The snippets of ``docs/clients`` and of the workers API page run, against simulated engines."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.docs.pages import blocks

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet, Served

WRITTEN = "http://127.0.0.1:8080"


def run(page: str, url: str) -> dict[str, Any]:
    """Execute the Python of a page from top to bottom; what it defines."""
    defined: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block.replace(WRITTEN, url), page, "exec"), defined)
    return defined


async def two_engines(fleet: Fleet) -> Served:
    """A gateway with two engines."""
    served = await fleet.gateway()
    for _ in range(2):
        await served.register((await fleet.engine()).url)
    await served.eligible(2)
    return served


async def test_openai(fleet: Fleet) -> None:
    """Chat, stream, extra body; the error of an unknown model needs a role that is not lenient."""
    from trimtab_gateway import ModelConfig, RoleConfig

    served = await fleet.gateway(RoleConfig("rollout", (ModelConfig("default"),)))
    await served.register((await fleet.engine()).url)
    await served.eligible(1)
    defined = await asyncio.to_thread(run, "docs/clients/openai.md", served.url)
    assert isinstance(defined["text"], str)
    assert "".join(defined["pieces"])
    assert defined["code"] == "unknown_model"
    defined["client"].close()
    assert served.gateway.pool("rollout", "default").statistics().sessions == 1


async def test_sglang_raw(fleet: Fleet) -> None:
    """Turns of one session on one engine, a complete stream, an error with its advice; the curl line as well."""
    served = await two_engines(fleet)
    defined = await asyncio.to_thread(run, "docs/clients/sglang-raw.md", served.url)
    assert len(defined["tokens"]) > 3
    assert defined["finished"]
    assert defined["last"]["meta_info"]["finish_reason"]
    assert (defined["error"]["code"], defined["repeat"]) == ("invalid_model", False)
    (curl,) = blocks("docs/clients/sglang-raw.md", "sh")
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", curl.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert '"meta_info"' in done.stdout


async def test_verl(fleet: Fleet) -> None:
    """Servers are registered by their addresses, an agent's turn runs, and the manager of one's own finds one."""
    served = await fleet.gateway()
    engine = await fleet.engine()
    defined = await asyncio.to_thread(run, "docs/clients/verl.md", served.url)
    await asyncio.to_thread(defined["register"], [engine.authority], served.url)
    await served.eligible(1)
    assert isinstance(await defined["turn"]("r", [{"role": "user", "content": "hello"}]), str)
    assert defined["run"]("r").startswith("http://10.0.0.")
    await defined["client"].close()


async def test_the_workers_page(fleet: Fleet) -> None:
    """What is registered by its curl line is listed by the other."""
    served = await fleet.gateway()
    (lines,) = blocks("docs/workers-api.md", "sh")
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", lines.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert '"status":"accepted"' in done.stdout
    assert '"url":"http://10.0.0.1:30000"' in done.stdout


async def test_a_judge_is_asked(fleet: Fleet) -> None:
    """The curl line of the gateway's page gets one text."""
    from trimtab_gateway import ModelConfig, RoleConfig

    judge = ModelConfig("judge", adapter="genrm", chat_template_kwargs={"enable_thinking": False})
    served = await fleet.gateway(RoleConfig("genrm", (judge,), route_keys={"math": "judge"}))
    await served.register((await fleet.engine()).url)
    await served.eligible(1, "genrm", "judge")
    (line,) = (block for block in blocks("docs/gateway.md", "sh") if "/genrm/generate" in block)
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", line.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert list(json.loads(done.stdout)) == ["response"]
