"""The end-of-test check finds every kind of leak, and nothing in a clean test."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.check import violations
from tests.support.client import RawClient
from tests.support.engine import ScriptedEngine
from tests.support.http1 import request_bytes
from tests.support.registry import Registry
from tests.support.registry import registry as current
from tests.support.scripts import hold
from tests.support.sockets import child_processes

if TYPE_CHECKING:
    from tests.support.lab import Lab

ROOT = Path(__file__).parents[2]


async def found(registry: Registry, *, patience_s: float = 0.0) -> list[str]:
    """Violations apart from what the running test itself is."""
    return await violations(registry, set(), child_processes(), patience_s=patience_s)


async def test_a_clean_test_has_no_violation(lab: Lab) -> None:
    """A gateway that served a request and was shut down leaves nothing."""
    gateway = await lab.gateway(await lab.engine(hold()))
    assert (await gateway.get("/live")).status == 200
    await gateway.shutdown()
    await current.engines[0].kill()
    assert await found(current, patience_s=2.0) == []


async def test_an_open_lease_is_found() -> None:
    """A lease that nobody settled is named with its backend."""
    from trimtab import Pool

    pool = Pool("rollout/leaky")
    pool.add_backend("127.0.0.1:9")
    lease = pool.acquire("s")
    assert await found(current) == ["pool rollout/leaky: 1 leases are open (on {'127.0.0.1:9': 1})"]
    pool.remove_backend("127.0.0.1:9")
    assert await found(current) == ["pool rollout/leaky: 1 leases are open (on removed backends)"]
    lease.settle("completed")
    assert await found(current) == []


async def test_an_open_request_and_its_sockets_are_found(lab: Lab) -> None:
    """A data plane in the middle of a request shows up as counters and as sockets."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate"))
    await gateway.busy(1)
    text = "\n".join(await found(current))
    assert "1 leases are open" in text
    assert "open_requests is 1" in text
    assert f"listening on {engine.port}" in text
    assert f"listening on {gateway.port}" in text
    assert f"-> {engine.port}" in text


async def test_an_engine_socket_is_found() -> None:
    """A connection to an engine is found while it is open, from both of its ends."""
    registry = Registry()
    async with ScriptedEngine(hold()) as engine:
        registry.engine(engine)
        async with RawClient("127.0.0.1", engine.port) as client:
            near = client.writer.get_extra_info("sockname")[1]
            text = "\n".join(await found(registry))
            assert f"{near} -> {engine.port}" in text
    assert await found(registry, patience_s=2.0) == []


async def test_a_pending_task_is_found() -> None:
    """A task that still runs is named; a finished one is not."""
    release = asyncio.Event()

    async def forgotten() -> None:
        await release.wait()

    task = asyncio.create_task(forgotten(), name="forgotten-task")
    tasks: set[asyncio.Task[Any]] = {other for other in asyncio.all_tasks() if other is not task}
    (line,) = await violations(Registry(), tasks, child_processes(), patience_s=0.0)
    assert "forgotten-task" in line
    release.set()
    assert await violations(Registry(), tasks, child_processes(), patience_s=2.0) == []


async def test_a_child_process_is_found() -> None:
    """A child that still runs, or that nobody waited for, is named."""
    before = child_processes()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220 - the leak itself
    (line,) = await violations(Registry(), asyncio.all_tasks(), before, patience_s=0.0)
    assert f"child process {child.pid}" in line
    child.communicate(b"\n")
    assert await violations(Registry(), asyncio.all_tasks(), before, patience_s=2.0) == []


LEAKY = """
import asyncio
from tests.support import check
from tests.support.engine import ScriptedEngine
from tests.support.scripts import hold

check.PATIENCE_S = 0.2
kept = []

async def test_clean():
    async with ScriptedEngine(hold()):
        pass

async def test_leaks_an_engine():
    engine = ScriptedEngine(hold())
    await engine.__aenter__()
    kept.append(engine)

async def test_leaks_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="left-over"))

def test_leaks_a_lease():
    from trimtab import Pool
    pool = Pool("p")
    pool.add_backend("127.0.0.1:9")
    kept.append(pool.acquire())
"""

OPTIONS = ["-p", "tests.support.plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-c", "/dev/null"]


@pytest.mark.slow
def test_the_check_fails_a_test_that_leaks(tmp_path: Path) -> None:
    """Run under pytest, each leaky test errors at its end, and the clean one between them does not."""
    (tmp_path / "test_leaky.py").write_text(textwrap.dedent(LEAKY))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *OPTIONS, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "4 passed, 3 errors" in run.stdout, run.stdout + run.stderr
    assert "open socket: listening on" in run.stdout
    assert "left-over" in run.stdout
    assert "pool p: 1 leases are open" in run.stdout
