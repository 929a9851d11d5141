"""The ``curl`` lines of the pages run as they stand, but for the addresses."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.pages import blocks
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "the-admin-key-of-this-test"
SIM = SimConfig(model_name="tiny", time_scale=0)


@asynccontextmanager
async def gateway(model: ModelConfig, **knobs: Any) -> AsyncIterator[Gateway]:
    """A gateway with one role."""
    async with Gateway(GatewayConfig((RoleConfig("rollout", (model,)),), port=0, **knobs)) as running:
        yield running


async def output(script: str) -> str:
    """What a shell prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode()


def documents(text: str) -> list[dict[str, Any]]:
    """Every JSON document of an output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.slow
async def test_the_lease_api_page_is_one_story() -> None:
    """From the first backend to the end of the pool, with two engines in the place of the page's."""
    page = "\n".join(blocks("docs/lease-api.md", "sh"))
    async with (
        running_engine(SIM) as first,
        running_engine(SIM) as second,
        gateway(ModelConfig("default", versioned=True), probe_interval_s=0.05) as served,
    ):
        for written, here in (
            ("http://127.0.0.1:8000", served.url),
            ("10.0.0.1:30000", first.authority),
            ("10.0.0.2:30000", second.authority),
        ):
            assert written in page
            page = page.replace(written, here)
        answers = documents(await output(page))
        assert [answer["error"] for answer in answers if "error" in answer] == []
        assert served.pool("rollout", "default").statistics().weight_version == 42


async def test_the_lines_of_the_api_page() -> None:
    """A turn, a stream, an abort, a look at the engines: nothing is refused, except a late or early abort."""
    page = f"ADMIN_KEY={KEY}\n" + "\n".join(blocks("docs/api.md", "sh")) + "\nwait\n"
    async with (
        running_engine(SIM) as engine,
        gateway(ModelConfig("tiny", (EngineConfig(engine.url),)), admin_key=KEY) as served,
    ):
        await wait_until(lambda: served.statistics().snapshot.ready, "the engine")
        assert "http://127.0.0.1:8080" in page
        text = await output(page.replace("http://127.0.0.1:8080", served.url).replace("wait_ms=30000", "wait_ms=10"))
    assert "data: [DONE]" in text
    assert '"meta_info"' in text
    assert set(re.findall(r'"code": ?"(\w+)"', text)) <= {"unknown_request", "request_waiting"}
