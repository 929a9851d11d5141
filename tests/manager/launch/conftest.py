"""Launchers that end with the test."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_sglang import write_fake
from trimtab_manager.launch.local import LocalLauncher
from trimtab_manager.launch.types import LaunchRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    MakeLauncher = Callable[..., LocalLauncher]


def request(engine: str = "sglang", **fields: Any) -> LaunchRequest:
    """A request for ``policy/0``; ``behave`` and ``file`` go to the fake server."""
    arguments: dict[str, Any] = {name: fields.pop(name) for name in ("behave", "file") if name in fields}
    arguments |= fields.pop("server_args", {})
    whole = {"engine_id": "policy/0", "generation": 1, "model_path": "models/tiny", "served_model_name": "tiny"}
    return LaunchRequest(**{**whole, "deadline_s": 30.0, **fields}, engine=engine, server_args=arguments)


@pytest.fixture
async def make_launcher(tmp_path: Path) -> AsyncIterator[MakeLauncher]:
    """``make_launcher(**options)`` over the fake server; closed at the end."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> LocalLauncher:
            options = {"python": write_fake(tmp_path), "stop_grace_s": 2.0, **options}
            launcher = LocalLauncher(tmp_path / "logs", **options)
            stack.push_async_callback(launcher.close)
            return launcher

        yield make
