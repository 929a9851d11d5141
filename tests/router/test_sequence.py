"""Numbers of a sender's requests."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from trimtab.sequence import Numbers, numbers_of


def test_numbers_are_contiguous_over_threads() -> None:
    """Eight threads take a thousand numbers each: every number once, and no gap."""
    numbers = Numbers("me")
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: numbers.take(), range(8_000)))
    assert sorted(taken) == list(range(1, 8_001))


def test_settled_numbers_are_intervals() -> None:
    """In any order and with repetitions, the intervals are those of the set."""
    shuffled = random.Random(7)
    for _ in range(50):
        chosen = shuffled.sample(range(1, 60), 40)
        numbers = Numbers("me")
        for number in chosen + chosen[:10]:
            numbers.settle(number)
        intervals = numbers.settled()
        assert [number for first, last in intervals for number in range(first, last + 1)] == sorted(chosen)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(intervals))


def test_one_open_request_costs_one_interval() -> None:
    """An execution that lasts hours keeps nothing above it from being forgotten."""
    numbers = Numbers("me")
    for number in range(1, 10_001):
        if number != 5:
            numbers.settle(number)
    assert numbers.settled() == [(1, 4), (6, 10_000)]


def test_a_process_has_one_counter_per_sender() -> None:
    """Whoever asks gets the same one; another sender has its own."""
    assert numbers_of("a") is numbers_of("a")
    assert numbers_of("a") is not numbers_of("b")


def test_a_sender_leaves_a_router_with_its_last_user() -> None:
    """Each router is left when nobody acquires of it any more."""
    numbers = Numbers("me")
    for router in ("r1", "r1", "r2"):
        numbers.enter(router)
    assert [numbers.leave(router) for router in ("r1", "r2", "r1")] == [False, True, True]


def test_a_forked_child_is_another_process() -> None:
    """The child has an incarnation and numbers of its own."""
    script = """
import os
from trimtab.sequence import numbers_of
mine = numbers_of("s")
mine.take()
if os.fork() == 0:
    own = numbers_of("s")
    os._exit(0 if own.incarnation != mine.incarnation and own.take() == 1 else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]), numbers_of("s").take())
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "0 2\n"
