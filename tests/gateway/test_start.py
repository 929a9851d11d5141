"""What a data plane refuses to start with, what it leaves behind, and that it needs no Python to run."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client import ask
from tests.support.lab import make_pool
from tests.support.registry import registry
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab import InvalidRequest, Pool, StartError, _core

if TYPE_CHECKING:
    from tests.support.lab import Lab


def role(name: str = "rollout", **options: Any) -> _core.Role:
    """A role with one empty pool."""
    return _core.Role(name, {"m": Pool()}, **options)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "Ä", "a?b", "..", "A" * 300])
def test_a_role_is_one_plain_path_segment(name: str) -> None:
    """It becomes a path prefix: anything that could be read otherwise is refused."""
    with pytest.raises(InvalidRequest):
        _core.DataPlane.start(roles=[role(name)]).shutdown()


def test_a_role_needs_a_model_and_a_default_that_exists() -> None:
    """Contradictions are found at start, not by the first request."""
    with pytest.raises(InvalidRequest):
        _core.Role("rollout", {})
    with pytest.raises(InvalidRequest, match="nope"):
        role(default_model="nope")


def test_two_roles_of_one_name_are_refused() -> None:
    """The second would never be reached."""
    with pytest.raises(InvalidRequest, match="rollout"):
        _core.DataPlane.start(roles=[role(), role()])


@pytest.mark.parametrize(
    "options",
    [
        {"connect_timeout_s": 0.0},
        {"connect_timeout_s": -1.0},
        {"first_byte_timeout_s": float("nan")},
        {"idle_timeout_s": float("inf")},
        {"total_timeout_s": -0.1},
        {"probe_interval_s": 0.0},
        {"abort_grace_s": -1.0},
        {"worker_threads": 0},
        {"max_body_bytes": 0},
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(options: dict[str, Any]) -> None:
    """The message names the knob."""
    (name,) = options
    with pytest.raises(InvalidRequest, match=name):
        _core.DataPlane.start(roles=[role()], **options)


@pytest.mark.parametrize("host", ["256.1.1.1", "no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_of_this_machine_is_a_start_error(host: str) -> None:
    """The message names the address."""
    with pytest.raises(StartError, match=host):
        _core.DataPlane.start(roles=[role()], host=host)


def threads(prefix: str) -> list[str]:
    """Names of this process's threads that begin with ``prefix``."""
    names = [(thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith(prefix)]


def descriptors() -> int:
    """Number of open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_starting_and_stopping_leaves_no_descriptor_and_no_thread(lab: Lab) -> None:
    """Twenty data planes in a row, each having served a request."""
    engine = await lab.engine(one())
    roles = [_core.Role("rollout", {"m": make_pool([engine])})]

    async def life() -> None:
        plane = _core.DataPlane.start(roles=roles)
        assert (await ask(plane.host, plane.port, "/generate")).status == 200
        await asyncio.to_thread(plane.shutdown, 1)
        registry.planes.remove(plane)  # a stopped data plane keeps its runtime's three descriptors until it is dropped
        await wait_until(lambda: engine.open_connections == 0, "the engine saw the end")
        del plane
        assert threads("trimtab") == others

    # One thread for waits in event loops begins with the first of them, and stays.
    others = threads("trimtab")
    gc.collect()  # what earlier tests left in reference cycles would end in between
    await life()
    before = descriptors()
    for _ in range(20):
        await life()
    # The thread that ran a shutdown may hold its data plane for a moment after it returned.
    await wait_until(lambda: descriptors() <= before, "as few descriptors as after the first data plane")


CLIENT = """
import socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(200):
    sock.sendall(b"GET /live HTTP/1.1\\r\\nHost: g\\r\\n\\r\\n")
    assert sock.recv(4096).startswith(b"HTTP/1.1 200")
    print(time.monotonic(), flush=True)
    time.sleep(0.005)
"""


@pytest.mark.slow
def test_it_serves_while_python_holds_the_gil() -> None:
    """Another process asks while this one sleeps without letting go of the interpreter: it is answered meanwhile."""
    plane = _core.DataPlane.start(roles=[_core.Role("rollout", {"m": make_pool([])})])
    child = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(plane.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()
        begin = time.monotonic()
        ctypes.PyDLL(None).usleep(700_000)  # a PyDLL call keeps the GIL
        end = time.monotonic()
        stamps = [float(line) for line in child.stdout]
    finally:
        child.communicate()
        plane.shutdown()
    assert sum(begin < stamp < end for stamp in stamps) > 5
