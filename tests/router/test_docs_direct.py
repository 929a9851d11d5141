"""The code of ``docs/direct-client.md`` runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.router.conftest import KEY
from trimtab.testing import ScriptedEngine
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig

PAGE = Path(__file__).parents[2] / "docs" / "direct-client.md"
TURN, FOLLOW = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


async def test_a_turn_and_a_stream() -> None:
    """Both blocks get the engine's answer."""
    with ScriptedEngine() as engine:
        model = ModelConfig("m", (EngineConfig(engine.url),))
        config = GatewayConfig((RoleConfig("rollout", (model,)),), port=0, admin_key=KEY)
        async with Gateway(config) as gateway:
            defined: dict[str, Any] = {"ROLE_URL": f"{gateway.url}/rollout", "ADMIN_KEY": KEY}
            exec(compile(TURN, str(PAGE), "exec"), defined)
            exec(compile(FOLLOW, str(PAGE), "exec"), defined)
            assert await defined["turn"]("hello") == "200: ok (version None)"
            assert b'"ok"' in await defined["follow"]("hello")
