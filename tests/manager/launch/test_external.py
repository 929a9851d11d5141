"""``ExternalLauncher``: engines that somebody else runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.manager.launch.conftest import request
from tests.support.sockets import refusing_address
from trimtab_manager.launch.external import ExternalLauncher
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from trimtab_manager.launch.types import Progress

from trimtab_manager.launch.types import LaunchError


async def test_it_attaches_and_leaves_alone() -> None:
    """A stop and a close do nothing to the engine; nobody claims to know whether it lives."""
    async with running_engine(SimConfig(time_scale=0)) as server:
        launcher = ExternalLauncher()
        engine = await launcher.launch(request(url=f"{server.url}/"))
        assert engine.url == server.url
        assert engine.facts == {"launcher": "external", "url": server.url}
        exited = asyncio.ensure_future(engine.exited())
        await engine.stop(0)
        await launcher.close()
        assert (await launcher.launch(request(url=server.url))).exit() is None
        assert not exited.done()
        exited.cancel()
    assert engine.log_tail() == ""


async def test_an_engine_that_is_not_there() -> None:
    """Progress while it is waited for; in the end the URL and the last evidence."""
    seen: list[Progress] = []
    with refusing_address() as address:
        launcher = ExternalLauncher(progress=seen.append, progress_interval_s=0.1)
        with pytest.raises(LaunchError, match=rf"policy/0 at http://{address} was not healthy.*connection refused"):
            await launcher.launch(request(url=f"http://{address}", deadline_s=0.5))
    assert seen
    with pytest.raises(LaunchError, match="policy/0: an external engine needs a URL"):
        await launcher.launch(request())
