"""Blocks of ports for the engines of a host.

An engine binds its ports long after they were chosen: SGLang half a minute later, and it derives some from others. So
ports are given out in blocks, and a block has to stay its owner's until the engine has ended:

* Blocks lie outside the range from which the kernel takes the local ports of connections.
* Who holds a block has bound an abstract Unix socket named after it. Such names are unique in a network namespace, as
  ports are; so the managers of all users and containers that share the ports agree, no file can be left over, and the
  kernel frees the block of a manager that died (with its forks, if it has any). It is held for the life of the engine.
* Every port of the block is bound too, until the engine is about to start: whoever asks for one of them gets
  "address in use" at once, and not the engine half a minute later.

A process that knows nothing of this and asks for a port by number can still take one in the moment of hand-over. The
engine then fails, and the launcher tries again with another block.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_manager.launch.types import LaunchError

BLOCK_SIZE = 16
"""Ports of a block. SGLang's farthest one is 13 above ``dist-init``, which is the third."""
PORTS = range(20_000, 65_536)
"""What blocks are made of. Below are the well-known services and Ray's workers (10002 to 19999)."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass
class PortBlock:
    """Consecutive ports that are this process's until ``release``."""

    base: int
    size: int
    _lock: socket.socket = field(repr=False)
    _held: list[socket.socket] = field(repr=False)

    @property
    def ports(self) -> range:
        """All of them."""
        return range(self.base, self.base + self.size)

    def __str__(self) -> str:
        """``20016-20031``."""
        return f"{self.ports[0]}-{self.ports[-1]}"

    def hand_over(self) -> None:
        """Unbinds the ports, so that the engine can bind them; the block stays this process's."""
        while self._held:
            self._held.pop().close()

    def release(self) -> None:
        """Gives the block back. Idempotent."""
        self.hand_over()
        self._lock.close()


def ephemeral_ports() -> range:
    """Ports that the kernel gives to outgoing connections."""
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999  # what Linux has by default
    return range(low, high + 1)


class PortAllocator:
    """Gives out blocks; any number of processes of a host may do so at the same time.

    Args:
        size: Ports of a block.
        within: Ports that blocks may be made of, less those of the kernel's own range.
        generator: Where the search for a free block begins; processes that begin at different places rarely meet.
        on_taken: Called with the ports of a block that somebody listens on or holds, unless another manager has the
            block; true: it was freed, so the block is tried once more.
    """

    def __init__(
        self,
        *,
        size: int = BLOCK_SIZE,
        within: range = PORTS,
        generator: random.Random | None = None,
        on_taken: Callable[[Sequence[int]], bool] = lambda _ports: False,
    ) -> None:
        self._size = size
        self._bases = tuple(_bases(within, ephemeral_ports(), size))
        self._within = within
        self._generator = generator or random.SystemRandom()
        self._on_taken = on_taken

    def allocate(self) -> PortBlock:
        """Takes a free block.

        Raises:
            LaunchError: There is none.
        """
        first = self._generator.randrange(len(self._bases)) if self._bases else 0
        for base in self._bases[first:] + self._bases[:first]:
            if (block := self._take(base)) is not None:
                return block
        raise LaunchError(
            f"no block of {self._size} free ports between {self._within.start} and {self._within.stop - 1}, outside "
            f"the kernel's own range ({_EPHEMERAL}): {len(self._bases)} blocks were tried. Narrow that range, or end "
            f"what listens there"
        )

    def _take(self, base: int) -> PortBlock | None:
        try:
            lock = _lock(base, self._size)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        held, taken = _bind(range(base, base + self._size))
        if taken and self._on_taken(taken):
            _close(held)
            held, taken = _bind(range(base, base + self._size))
        if taken:
            _close([*held, lock])
            return None
        return PortBlock(base, self._size, lock, held)


def _bases(within: range, ephemeral: range, size: int) -> Iterator[int]:
    """Multiples of ``size`` whose block is within and has no ephemeral port: all processes cut the same blocks."""
    for base in range(-(-within.start // size) * size, within.stop - size + 1, size):
        if base + size <= ephemeral.start or base >= ephemeral.stop:
            yield base


def _lock(base: int, size: int) -> socket.socket:
    """The abstract socket of a block. Raises OSError with EADDRINUSE when somebody has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0trimtab-ports-{base}-{size}".encode())
    except OSError:
        lock.close()
        raise
    return lock


def _bind(ports: range) -> tuple[list[socket.socket], list[int]]:
    """Bind every port on every address; the sockets, and the ports that are somebody else's."""
    held: list[socket.socket] = []
    taken = []
    for port in ports:
        try:
            held.append(bind_everywhere(port))
        except OSError as error:  # noqa: PERF203  # each port is a question of its own
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                _close(held)
                raise
            taken.append(port)
    return held, taken


def bind_everywhere(port: int) -> socket.socket:
    """Bind a port on all addresses of both families, without SO_REUSEADDR: nobody else has it in any way."""
    dual = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    try:
        if dual:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("::" if dual else "0.0.0.0", port))  # noqa: S104  # it never listens
    except OSError:
        bound.close()
        raise
    return bound


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()
