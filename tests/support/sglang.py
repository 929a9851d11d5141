"""Real SGLang servers for tests, as processes that cannot outlive the test run.

Starting one costs 20 to 60 s of imports on two cores. The session-scoped ``sglang_servers`` therefore starts two once,
at the same moment, and ``sglang_pair`` hands them to a test in a known state; ``start_sglang`` makes throw-away servers
for tests that kill one. How the environment is built and which facts of SGLang this relies on:
``tests/sglang_cpu/README.md``.

Without the environment the fixtures skip and say how to install it. With ``CI=true`` or ``TRIMTAB_REQUIRE_SGLANG=1``
they fail instead, so that a pipeline cannot pass by testing nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.serve import GatewayProcess, Observer, eventually, stopped_at_the_end
from tests.support.sglang_server import (
    RECIPE,
    REPOSITORY,
    Installation,
    SglangError,
    SglangServer,
    start_servers,
    stop_servers,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


VENV = REPOSITORY / ".venvs" / "sglang"
MODELS = REPOSITORY / ".cache" / "models"


def find_installation(venv: Path = VENV) -> Installation:
    """Return the installed environment with its models. Raises ``SglangError`` saying how to install it."""
    python = venv / "bin" / "python"
    if not python.exists():
        raise SglangError(f"SGLang is not installed ({venv}): run `python3 tests/sglang_cpu/install.py`")
    command = [sys.executable, str(RECIPE / "install.py"), "--venv", str(venv), "--models", str(MODELS), "--check"]
    check = subprocess.run(command, check=False, capture_output=True, text=True)
    if check.returncode != 0:
        raise SglangError(check.stderr.strip())
    return Installation(python, tuple(MODELS / f"llama-s{seed}" for seed in (0, 1)))


def require_installation(venv: Path = VENV) -> Installation:
    """Return the environment; skip when it is absent, fail when this run requires it."""
    try:
        return find_installation(venv)
    except SglangError as error:
        if os.environ.get("CI") == "true" or os.environ.get("TRIMTAB_REQUIRE_SGLANG") == "1":
            pytest.fail(f"this run requires SGLang: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sglang_installation() -> Installation:
    """The environment of the real servers."""
    return require_installation()


@contextmanager
def running_servers(
    installation: Installation, folder: Path, names: list[str], flags: tuple[str, ...] = ()
) -> Iterator[list[SglangServer]]:
    """Servers with logs ``folder/<name>.log``, stopped at the end whatever happened."""
    servers = [SglangServer(installation, log=folder / f"{name}.log", flags=flags) for name in names]
    start_servers(servers)
    try:
        yield servers
    finally:
        stop_servers(servers)


@pytest.fixture(scope="session")
def sglang_servers(
    sglang_installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SglangServer, SglangServer]]:
    """Two servers for the whole run. Tests take ``sglang_pair``, which resets them."""
    with running_servers(sglang_installation, tmp_path_factory.mktemp("sglang"), ["shared-0", "shared-1"]) as servers:
        yield servers[0], servers[1]


@pytest.fixture
def sglang_pair(sglang_servers: tuple[SglangServer, SglangServer]) -> tuple[SglangServer, SglangServer]:
    """The two shared servers, reset: running, idle, empty cache, weights of seed 0."""
    for server in sglang_servers:
        server.reset()
    return sglang_servers


@pytest.fixture
def start_sglang(sglang_installation: Installation, tmp_path: Path) -> Iterator[Callable[..., SglangServer]]:
    """``start_sglang(*flags)`` gives a ready server that the test may crash; stopped when the test ends."""
    servers: list[SglangServer] = []

    def start(*flags: str) -> SglangServer:
        server = SglangServer(sglang_installation, log=tmp_path / f"private-{len(servers)}.log", flags=flags)
        start_servers([server])
        servers.append(server)
        return server

    yield start
    stop_servers(servers)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without connection limit; no call of it outlives a minute."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as client:
        yield client


@pytest.fixture
async def sglang_gateway(
    sglang_pair: tuple[SglangServer, SglangServer], http: aiohttp.ClientSession, tmp_path: Path
) -> AsyncIterator[GatewayProcess]:
    """A gateway process over the two shared servers. In the end nothing is outstanding, and it exits with 0.

    Sessions stay where they are: tests compare what two slow engines do, and one is soon twice as crowded.
    """
    servers = [server.url for server in sglang_pair]
    with stopped_at_the_end(GatewayProcess(servers, tmp_path / "gateway.log", spill=False)) as gateway:
        await gateway.start()
        yield gateway
        await eventually(Observer(http, gateway).outstanding, 0, "no lease is open after the test")
        for server in sglang_pair:
            await server.idle()


@pytest.fixture
def observer(http: aiohttp.ClientSession, sglang_gateway: GatewayProcess) -> Observer:
    """What ``sglang_gateway`` says about itself."""
    return Observer(http, sglang_gateway)
