"""The Python of the README runs as it stands, but for the ports."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

README = Path(__file__).parents[2] / "README.md"
SIM = SimConfig(model_name="tiny", time_scale=0)


def program(word: str) -> str:
    """The one Python block with ``word`` in it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return found


async def output(source: str) -> list[str]:
    """The lines that a program prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


async def test_the_program_with_a_router_keeps_its_session_on_one_engine() -> None:
    """Three turns, the first of them new."""
    async with running_engine(SIM) as first, running_engine(SIM) as second:
        source = program("import Router")
        for port, engine in (("30000", first), ("30001", second)):
            assert f"http://127.0.0.1:{port}" in source
            source = source.replace(f"http://127.0.0.1:{port}", engine.url)
        turns = [line.split()[:3] for line in await output(source) if line[:1].isdigit()]
        assert turns == [
            ["0", first.authority, "new"],
            ["1", first.authority, "sticky"],
            ["2", first.authority, "sticky"],
        ]


async def test_the_program_of_an_openai_client_gets_its_answer() -> None:
    """Through a gateway with the README's role and model."""
    async with running_engine(SIM) as engine:
        model = ModelConfig("tiny", (EngineConfig(engine.url),))
        async with Gateway(GatewayConfig((RoleConfig("rollout", (model,)),), port=0)) as gateway:
            await wait_until(lambda: gateway.statistics().snapshot.ready, "the engine")
            source = program("import OpenAI")
            assert "http://127.0.0.1:8080" in source
            assert await output(source.replace("http://127.0.0.1:8080", gateway.url))
        assert engine.engine.statistics().requests_finished == 1
