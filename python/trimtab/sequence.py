"""Numbers of a sender's requests: handed out without gaps, and taken back when they are settled.

A router remembers what it answered to a request until the sender says that it needs the answer no more. Were there two
counters for one sender in a process, two different requests would carry one number, and the second would be given the
lease of the first. So there is one ``Numbers`` per sender and router in a process, whoever asks for it.

What is settled is a set of intervals, not a watermark: one execution that lasts hours would hold a watermark back, and
the router would have to remember everything above it.
"""

from __future__ import annotations

import os
import threading
import uuid
from bisect import bisect_right

__all__ = ["Numbers", "numbers_of"]


class Numbers:
    """The request numbers of one sender of this process. Thread-safe.

    Attributes:
        incarnation: Names the process: another after a restart, and in a forked child.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self._lock = threading.Lock()
        self._last = 0
        self._users = 0
        # Intervals, ascending, no two touching: firsts and lasts, both included.
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def enter(self) -> None:
        """Somebody acquires as this sender from now on."""
        with self._lock:
            self._users += 1

    def leave(self) -> bool:
        """Ends one ``enter``; whether it was the last."""
        with self._lock:
            self._users -= 1
            return self._users == 0

    def take(self) -> int:
        """The next number; the first is 1."""
        with self._lock:
            self._last += 1
            return self._last

    def settle(self, number: int) -> None:
        """The answer to request ``number`` is needed no more. Idempotent."""
        with self._lock:
            place = bisect_right(self._firsts, number)
            if place and self._lasts[place - 1] >= number:
                return
            joins_before = place > 0 and self._lasts[place - 1] == number - 1
            joins_after = place < len(self._firsts) and self._firsts[place] == number + 1
            if joins_before and joins_after:
                self._lasts[place - 1] = self._lasts.pop(place)
                del self._firsts[place]
            elif joins_before:
                self._lasts[place - 1] = number
            elif joins_after:
                self._firsts[place] = number
            else:
                self._firsts.insert(place, number)
                self._lasts.insert(place, number)

    def settled(self) -> list[tuple[int, int]]:
        """Every settled number, as intervals with both ends included, ascending."""
        with self._lock:
            return list(zip(self._firsts, self._lasts, strict=True))


_registry: dict[tuple[str, str], Numbers] = {}
_registry_lock = threading.Lock()
_incarnation = uuid.uuid4().hex


def numbers_of(router: str, sender: str) -> Numbers:
    """The numbers of a sender of this process towards one router, the same object every time.

    Args:
        router: Names the router and its pool.
        sender: Name of the sender.
    """
    with _registry_lock:
        return _registry.setdefault((router, sender), Numbers(_incarnation))


def _begin_anew() -> None:
    """A forked child is another process: the numbers it inherited belong to its parent."""
    global _incarnation, _registry_lock  # noqa: PLW0603 - the two facts about this process
    _incarnation = uuid.uuid4().hex
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_begin_anew)
