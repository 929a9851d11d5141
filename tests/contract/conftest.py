"""``engine``: the simulated engine and, with the mark ``sglang``, a real server. Every test runs on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.target import client, simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.contract.target import Target
    from tests.support.sglang_server import SglangServer

REAL = pytest.param("real", marks=[pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)])
API_KEY = "sek"


@pytest.fixture(scope="session", params=["sim", REAL])
def server(request: pytest.FixtureRequest) -> SglangServer | None:
    """The shared real server, or ``None`` for a simulated engine.

    Of session scope, so that the server is there before the end-of-test check of its first test looks for children.
    """
    if request.param == "sim":
        return None
    shared: SglangServer = request.getfixturevalue("sglang_servers")[0]
    return shared


@pytest.fixture(params=["sim", REAL])
def start_private(request: pytest.FixtureRequest) -> Callable[..., SglangServer] | None:
    """Starts a real server of the test's own, or ``None`` for a simulated engine."""
    if request.param == "sim":
        return None
    start: Callable[..., SglangServer] = request.getfixturevalue("start_sglang")
    return start


@pytest.fixture
async def engine(request: pytest.FixtureRequest, server: SglangServer | None, tmp_path: Path) -> AsyncIterator[Target]:
    """An engine in its initial state."""
    if server is None:
        async with simulated(tmp_path) as target:
            yield target
        return
    server.reset()
    first, second = map(str, request.getfixturevalue("sglang_installation").models)
    async with client(server.url, (first, second)) as target:
        yield target
        await target.resume()
        await target.speed_up()
        await target.post("/abort_request", {"abort_all": True})
        await target.until_load(0)


@pytest.fixture
async def mortal_engine(
    request: pytest.FixtureRequest, start_private: Callable[..., SglangServer] | None, tmp_path: Path
) -> AsyncIterator[Target]:
    """An engine that the test may kill."""
    if start_private is None:
        async with simulated(tmp_path) as target:
            yield target
        return
    private = start_private()
    first, second = map(str, request.getfixturevalue("sglang_installation").models)
    async with client(private.url, (first, second)) as target:
        yield target


@pytest.fixture
async def locked_engine(
    request: pytest.FixtureRequest, start_private: Callable[..., SglangServer] | None, tmp_path: Path
) -> AsyncIterator[Target]:
    """An engine that wants the key ``API_KEY``."""
    if start_private is None:
        async with simulated(tmp_path, api_key=API_KEY) as target:
            yield target
        return
    private = start_private("--api-key", API_KEY)
    first, second = map(str, request.getfixturevalue("sglang_installation").models)
    async with client(private.url, (first, second)) as target:
        yield target
