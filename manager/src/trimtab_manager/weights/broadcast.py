"""Rank 0 of a process group: the rendezvous, the group, and the broadcasts, each in a thread with a deadline.

SGLang joins with a group of its own beside torch's default one. There is no public call for that in torch, and every
training framework reaches for the same private one; it is confined to ``_join``. A trainer's default group, when it has
one, is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from trimtab.errors import TrimtabError

T = TypeVar("T")

LEAST_S = 2.0
"""The rendezvous is up that long, even for a group that breaks at once. Torch tries for half an hour to reach one that
is not there, while a connection that ends fails a wait at once: so every call that is on its way must find it."""


class BroadcastError(TrimtabError):
    """The trainer's side of a group failed, or was torn down since an engine did; the message has torch's words."""

    code = "broadcast_failed"


class Broadcaster:
    """Rank 0 of one group, for one update. ``abort`` may come from anywhere, at any time, and makes what runs fail.

    Args:
        address: Address of this host that the engines are told.
        port: Port of the rendezvous; 0 picks one.
        backend: ``nccl`` or ``gloo``.
        group_name: The group's name.
    """

    def __init__(self, address: str, port: int, backend: str, group_name: str) -> None:
        self._address = address
        self._port = port
        self._backend = backend
        self._group_name = group_name
        self._world = 0
        self._timeout = timedelta(seconds=60)
        self._rendezvous: Any = None
        self._group: Any = None
        self._opened_s = 0.0
        self._aborted = False
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    async def listen(self, world: int, timeout_s: float) -> int:
        """Open the rendezvous for ``world`` ranks, and give its port."""
        self._world = world
        self._timeout = timedelta(seconds=timeout_s)
        return await self._run(self._listen)

    async def form(self) -> None:
        """Join. Returns when all ranks have.

        Raises:
            BroadcastError: Not all did within the deadline, or ``abort`` came.
        """
        await self._run(self._join)

    async def send(self, bucket: Sequence[tuple[str, Any]], timeout_s: float) -> None:
        """Broadcast tensors in order.

        Raises:
            BroadcastError: A rank was lost, the deadline passed, or ``abort`` came.
        """
        await self._run(lambda: self._broadcast([tensor for _, tensor in bucket], timeout_s))

    def abort(self) -> None:
        """Tear everything down. Idempotent; returns at once."""
        with self._lock:
            if self._aborted:
                return
            self._aborted = True
        # Tearing down may wait for what it tears down, so it must not happen on the event loop.
        self._start(self._tear_down)

    async def closed(self) -> None:
        """Wait until no thread of it is left; ``abort`` must have come."""
        for thread in tuple(self._threads):
            await asyncio.to_thread(thread.join, 30.0)

    # In threads.

    def _listen(self) -> int:
        from torch.distributed import TCPStore

        # The listener is ours, so that the port is known before anybody is told, and free until then for nobody else.
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self._address, self._port))
            except OSError:  # an address that only others know this host by
                listener.bind(("", self._port))
            self._port = listener.getsockname()[1]
            listener.listen(self._world + 16)
            self._opened_s = time.monotonic()
            self._rendezvous = TCPStore(
                host_name=self._address,
                port=self._port,
                world_size=self._world,
                is_master=True,
                timeout=self._timeout,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
        return self._port

    def _join(self) -> None:
        import torch.distributed.distributed_c10d as c10d
        from torch.distributed import TCPStore

        # A connection of its own to our own rendezvous: when that is torn down, this fails as the engines' do.
        client = TCPStore(self._address, self._port, self._world, is_master=False, timeout=self._timeout)
        store = c10d.PrefixStore(self._group_name, client)
        group, _ = c10d._new_process_group_helper(  # see the head of this module
            self._world,
            0,
            [],
            c10d.Backend(self._backend),
            store,
            group_name=self._group_name,
            timeout=self._timeout,
        )
        c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(self._world)}
        with self._lock:
            self._group = group
            torn = self._aborted
        if torn:
            self._tear_down()
            raise BroadcastError("the group was torn down while it formed")

    def _broadcast(self, tensors: list[Any], timeout_s: float) -> None:
        import torch.distributed as dist

        works = [dist.broadcast(tensor.contiguous(), src=0, group=self._group, async_op=True) for tensor in tensors]
        for work in works:
            work.wait(timedelta(seconds=timeout_s))

    def _tear_down(self) -> None:
        with self._lock:
            group, self._group = self._group, None
            rendezvous, self._rendezvous = self._rendezvous, None
        if group is None and rendezvous is not None:
            time.sleep(max(0.0, self._opened_s + LEAST_S - time.monotonic()))
        if group is not None:
            import torch.distributed as dist

            with contextlib.suppress(Exception):  # a backend that cannot abort, or a group that broke already
                group.abort()
            with contextlib.suppress(Exception):
                dist.destroy_process_group(group)
        # The last reference closes the rendezvous, and with it the wait of whoever has not joined.
        del rendezvous, group

    async def _run(self, work: Callable[[], T]) -> T:
        """``work`` in a thread of its own: the default executor would be held by one that hangs."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]  # None only for work that gives None
            else:
                done.set_exception(error)

        def body() -> None:
            result, problem = None, None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - torch raises what it likes; all of it means the same here
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                problem = BroadcastError(f"rank 0 of group {self._group_name} failed: {text}")
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits
                loop.call_soon_threadsafe(finish, result, problem)

        self._start(body)
        timeout_s = self._timeout.total_seconds() + 1.0
        try:
            return await asyncio.wait_for(done, timeout_s)
        except asyncio.TimeoutError:
            self.abort()
            raise BroadcastError(f"rank 0 of group {self._group_name} was not done after {timeout_s:.0f} s") from None

    def _start(self, body: Callable[[], None]) -> None:
        def run() -> None:
            try:
                body()
            finally:
                self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=f"trimtab-{self._group_name}", daemon=True)
        self._threads.add(thread)
        thread.start()
