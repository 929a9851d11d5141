"""A million requests through the lease API, with every fault a network has: nothing is lost, doubled or left over."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest

from tests.router.soak.traffic import Traffic
from tests.router.soak.wire import Router
from tests.support.lab import Lab
from tests.support.scripts import one

PAIRS = int(os.environ.get("TRIMTAB_SOAK_PAIRS", "20000"))
"""The full run is ``TRIMTAB_SOAK_PAIRS=1000000``; ``-s`` shows the counts."""
SEED = int(os.environ.get("TRIMTAB_SOAK_SEED", "3"))
ENGINES = 16
GROWTH_MIB = 4.0
"""What the allocator may keep beyond the first tenth of the run; 10^6 leaked records of 16 bytes are 15 MiB."""


@pytest.mark.slow
@pytest.mark.timeout(120 + PAIRS // 500)
async def test_faults_leave_nothing_behind(lab: Lab) -> None:
    """After duplicates, delays, lost replies and restarts the tables are empty, the counts exact and memory is back."""
    engines = await lab.engines(ENGINES, one())

    def soak() -> None:
        with Router([engine.authority for engine in engines]) as router:
            traffic = Traffic(router, SEED)
            traffic.run(PAIRS // 10, restarts=2)
            baseline = router.resident_mib
            began = time.monotonic()
            router.restart()
            traffic.run(PAIRS, restarts=10)
            seconds, after = time.monotonic() - began, router.resident_mib
            assert traffic.counts["ended"] == PAIRS + PAIRS // 10
            counts = ", ".join(f"{name} {count}" for name, count in sorted(traffic.counts.items()))
            rss = f"RSS {baseline:.1f} -> {after:.1f} MiB"
            sys.stdout.write(f"\n{PAIRS} pairs in {seconds:.1f} s; {rss}; {counts}\n")
            assert after < baseline + GROWTH_MIB

    await asyncio.to_thread(soak)
