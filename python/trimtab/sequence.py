"""Numbers of a sender's requests: handed out without gaps, and taken back when they are settled.

A router remembers what it answered to a request until the sender says that it needs the answer no more. Were there two
counters for one sender in a process, two different requests would carry one number, and the second would be given the
lease of the first. So there is one ``Numbers`` per sender in a process, whoever asks for it. (Not one per router too:
nobody can tell whether two URLs, or two names of a pool, are the same. That a router sees gaps then costs nothing: the
sender tells each of them about every number. And not one for all senders of a process: to a router each of them is a
process of its own, and what one of them still runs would be a gap in the numbers of all others.)

What is settled is a set of intervals, not a watermark: one execution that lasts hours would hold a watermark back, and
the router would have to remember everything above it.
"""

from __future__ import annotations

import os
import threading
import uuid
from bisect import bisect_right
from collections import Counter

__all__ = ["Numbers", "incarnation", "numbers_of"]


class Numbers:
    """The request numbers of one sender of this process. Thread-safe.

    Attributes:
        incarnation: Names the process: another after a restart, and in a forked child.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self._lock = threading.Lock()
        self._last = 0
        self._users: Counter[str] = Counter()
        # Intervals, ascending, no two touching: firsts and lasts, both included.
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def enter(self, router: str) -> None:
        """Somebody acquires of ``router`` as this sender from now on."""
        with self._lock:
            self._users[router] += 1

    def leave(self, router: str) -> bool:
        """Ends one ``enter``; whether it was the last of that router."""
        with self._lock:
            self._users[router] -= 1
            is_last = self._users[router] == 0
            if is_last:
                del self._users[router]
            return is_last

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


_registry: dict[str, Numbers] = {}
_registry_lock = threading.Lock()
_incarnation = uuid.uuid4().hex


def incarnation() -> str:
    """Names this process: another one after a restart, and in a forked child."""
    return _incarnation


def numbers_of(sender: str) -> Numbers:
    """The numbers of a sender of this process, the same object every time."""
    with _registry_lock:
        return _registry.setdefault(sender, Numbers(_incarnation))


def _begin_anew() -> None:
    """A forked child is another process: the numbers it inherited belong to its parent."""
    global _incarnation, _registry_lock  # noqa: PLW0603 - the two facts about this process
    _incarnation = uuid.uuid4().hex
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_begin_anew)
