"""The snippets of ``docs/clients`` and of the workers API page run, against simulated engines."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet, Served

DOCS = Path(__file__).parents[3] / "docs"
WRITTEN = "http://127.0.0.1:8080"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


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
    defined = await asyncio.to_thread(run, "clients/openai.md", served.url)
    assert isinstance(defined["text"], str)
    assert "".join(defined["pieces"])
    assert defined["code"] == "unknown_model"
    defined["client"].close()
    assert served.gateway.pool("rollout", "default").statistics().sessions == 1


async def test_sglang_raw(fleet: Fleet) -> None:
    """Turns of one session on one engine, a complete stream, an error with its advice; the curl line as well."""
    served = await two_engines(fleet)
    defined = await asyncio.to_thread(run, "clients/sglang-raw.md", served.url)
    assert len(defined["tokens"]) > 3
    assert defined["finished"]
    assert defined["last"]["meta_info"]["finish_reason"]
    assert (defined["error"]["code"], defined["repeat"]) == ("invalid_model", False)
    (curl,) = blocks("clients/sglang-raw.md", "sh")
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", curl.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert '"meta_info"' in done.stdout


async def test_verl(fleet: Fleet) -> None:
    """Servers are registered by their addresses, an agent's turn runs, and the manager of one's own finds one."""
    served = await fleet.gateway()
    engine = await fleet.engine()
    defined = await asyncio.to_thread(run, "clients/verl.md", served.url)
    await asyncio.to_thread(defined["register"], [engine.authority], served.url)
    await served.eligible(1)
    assert isinstance(await defined["turn"]("r", [{"role": "user", "content": "hello"}]), str)
    assert defined["run"]("r").startswith("http://10.0.0.")
    await defined["client"].close()


async def test_the_workers_page(fleet: Fleet) -> None:
    """What is registered by its curl line is listed by the other."""
    served = await fleet.gateway()
    (lines,) = blocks("workers-api.md", "sh")
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", lines.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert '"status":"accepted"' in done.stdout
    assert '"url":"http://10.0.0.1:30000"' in done.stdout


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "clients").glob("*.md")))
def test_commands_name_options_that_exist(page: str) -> None:
    """Every ``trimtab serve`` of a page is one that the command takes."""
    from trimtab.cli.serve import command

    known = {option for parameter in command.params for option in parameter.opts}
    used = set()
    for block in blocks(f"clients/{page}", "console"):
        for line in block.splitlines():
            if line.startswith("$ trimtab serve"):
                used |= set(re.findall(r"(--[a-z-]+)", line))
    assert used <= known


async def test_a_judge_is_asked(fleet: Fleet) -> None:
    """The curl line of the gateway's page gets one text."""
    from trimtab_gateway import ModelConfig, RoleConfig

    judge = ModelConfig("judge", adapter="genrm", chat_template_kwargs={"enable_thinking": False})
    served = await fleet.gateway(RoleConfig("genrm", (judge,), route_keys={"math": "judge"}))
    await served.register((await fleet.engine()).url)
    await served.eligible(1, "genrm", "judge")
    (line,) = (block for block in blocks("gateway.md", "sh") if "/genrm/generate" in block)
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-ec", line.replace(WRITTEN, served.url)], capture_output=True, check=True, text=True
    )
    assert list(json.loads(done.stdout)) == ["response"]
