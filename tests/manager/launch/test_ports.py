"""Blocks of ports: nobody else's, outside the kernel's own range, and held."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.manager.launch.conftest import request
from tests.support.listener import listener
from tests.support.waiting import wait_until
from trimtab_manager.launch.local.ports import PORTS, PortAllocator, bind_everywhere, ephemeral_ports
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab_manager.launch.local import LocalLauncher
    from trimtab_manager.launch.types import Progress

    MakeLauncher = Callable[..., LocalLauncher]

_ALLOCATE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from trimtab_manager.launch.local.ports import PortAllocator
first, last, size, count = map(int, sys.argv[1:])
with ThreadPoolExecutor(count) as threads:
    allocator = PortAllocator(size=size, within=range(first, last))
    blocks = list(threads.map(lambda _: allocator.allocate(), range(count)))
print(*(block.base for block in blocks), flush=True)
sys.stdin.read()
for block in blocks:
    block.release()
"""


def some_blocks(count: int, size: int = 16) -> range:
    """Ports of ``count`` consecutive blocks that are all free now."""
    for _ in range(200):
        base = random.SystemRandom().randrange(20_000, 30_000, size)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(base, base + count * size):
                stack.enter_context(bind_everywhere(port))
            return range(base, base + count * size)
    raise AssertionError("no free ports")


@pytest.mark.slow
def test_b17_sixty_four_launches_of_eight_processes() -> None:
    """Each of 8 processes takes 8 blocks at the same time while every tenth port is taken: no port is given twice."""
    size, ports = 4, range(24_000, 25_600)
    generator = random.Random(17)
    with contextlib.ExitStack() as stack:
        taken = set()
        for port in generator.sample(ports, len(ports) // 10):
            with contextlib.suppress(OSError):  # somebody else has it: taken all the same
                stack.enter_context(bind_everywhere(port))
            taken.add(port)
        command = [sys.executable, "-c", _ALLOCATE, str(ports.start), str(ports.stop), str(size), "8"]
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(8)
        ]
        bases = [int(word) for process in processes for word in process.stdout.readline().split()]  # type: ignore[union-attr]  # a pipe
        given = [port for base in bases for port in range(base, base + size)]
        for process in processes:
            process.communicate("")
    assert len(bases) == 64
    assert len(set(given)) == len(given)
    assert not taken & set(given)


async def test_b17_a_port_that_is_taken_at_the_last_moment(
    make_launcher: MakeLauncher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine ends with EADDRINUSE: it is started again, on a whole new block."""
    note = tmp_path / "note"
    engine = await make_launcher().launch(request(behave="port taken once", file=str(note)))
    assert not engine.url.endswith(note.read_text())
    assert "was somebody else's when it started (attempt 1 of 5); another block is tried" in caplog.text


async def test_a_stranger_that_answers_in_its_place(
    make_launcher: MakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    """A server of somebody else's on the port, healthy, is not taken for the engine."""
    ports = some_blocks(1)

    async def healthy(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    seen: list[Progress] = []
    launcher = make_launcher(ports=ports, progress=seen.append, progress_interval_s=0.02)
    launch = asyncio.ensure_future(launcher.launch(request(behave="silent")))
    await wait_until(lambda: seen, "the engine starts")
    async with await asyncio.start_server(healthy, "127.0.0.1", ports[0]):
        with pytest.raises(LaunchError, match="no block"):  # the only one is the stranger's now
            await launch
    assert "another block is tried" in caplog.text
    assert f"port {ports[0]} is in use by pid {os.getpid()}" in caplog.text


def test_a_block_is_held_until_it_is_released() -> None:
    """Its ports are bound until the hand-over; others get another block until the release."""
    allocator = PortAllocator(within=some_blocks(1))
    block = allocator.allocate()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", block.ports[-1]))
    block.hand_over()
    with socket.socket() as other:
        other.bind(("127.0.0.1", block.ports[-1]))
    with pytest.raises(LaunchError, match=r"no block of 16 free ports between \d+ and \d+.*1 blocks were tried"):
        PortAllocator(within=block.ports).allocate()
    block.release()
    again = PortAllocator(within=block.ports).allocate()
    assert again.base == block.base
    again.release()


def test_blocks_lie_outside_the_ephemeral_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the kernel's range begins low; a range that covers everything is an error that says so."""
    assert ephemeral_ports().start > 1024
    monkeypatch.setattr("trimtab_manager.launch.local.ports.ephemeral_ports", lambda: range(10_000, 61_000))
    block = PortAllocator().allocate()
    assert block.base >= 61_000
    block.release()
    monkeypatch.setattr("trimtab_manager.launch.local.ports.ephemeral_ports", lambda: range(1024, 65_536))
    with pytest.raises(LaunchError, match="0 blocks were tried"):
        PortAllocator().allocate()
    assert PORTS.stop == 65_536


async def test_b92_a_leftover_of_our_run_is_ended(
    make_launcher: MakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds a port of the last free block: its group is killed, and the block taken."""
    ports = some_blocks(2)
    launcher = make_launcher(run_id="b92", ports=ports)
    # The first launch looks for leftovers itself; this is about one that is found by its port.
    first = await launcher.launch(request())
    block = ports[:16] if first.url.endswith(str(ports[16])) else ports[16:]
    with listener(block[3], {"TRIMTAB_RUN_ID": "b92", "TRIMTAB_MANAGER": "1:1"}) as orphan:
        engine = await launcher.launch(request(engine_id="policy/1"))
        assert orphan.wait(2) == -9
    assert engine.url.endswith(str(block[0]))
    assert f"port {block[3]} is in use by pid {orphan.pid} (" in caplog.text
    assert "a leftover of this run; it is ended" in caplog.text


async def test_b92_a_stranger_is_avoided_and_named(
    make_launcher: MakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever belongs to another run, or to a manager that lives, is left alone."""
    ports = some_blocks(1)
    launcher = make_launcher(run_id="b92", ports=ports)
    with listener(ports[3], {"TRIMTAB_RUN_ID": "another"}) as stranger:
        with pytest.raises(LaunchError, match="no block"):
            await launcher.launch(request())
        assert stranger.poll() is None
        assert f"port {ports[3]} is in use by pid {stranger.pid} (" in caplog.text
        assert "another block is taken" in caplog.text


@pytest.mark.slow
async def test_b18_leftovers_of_the_run_are_ended_before_the_first_launch(make_launcher: MakeLauncher) -> None:
    """Only those: not another run's, not those of a manager of the same run that lives."""
    ports = some_blocks(2)
    engine = await make_launcher(run_id="b18").launch(request())
    with (
        listener(ports[0], {"TRIMTAB_RUN_ID": "b18", "TRIMTAB_MANAGER": "1:1"}) as orphan,
        listener(ports[16], {"TRIMTAB_RUN_ID": "another", "TRIMTAB_MANAGER": "1:1"}) as foreign,
    ):
        await make_launcher(run_id="b18").launch(request(engine_id="policy/1"))
        assert orphan.wait(2) == -9
        assert foreign.poll() is None
        assert engine.exit() is None
