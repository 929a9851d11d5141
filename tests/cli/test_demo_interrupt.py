"""Signals end a run after its cleanup, and leave the process's signal handling as it was."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from trimtab.cli.demo.interrupt import InterruptedRunError, run_until_signal


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_run_and_waits_for_its_cleanup(
    signum: signal.Signals, code: int, handler: signal.Handlers
) -> None:
    """Cleanup that itself needs the event loop is finished before the signal is reported."""
    cleaned = []

    async def run() -> None:
        os.kill(os.getpid(), signum)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    before = signal.signal(signum, handler)
    try:
        with pytest.raises(InterruptedRunError, match=signum.name) as caught:
            run_until_signal(run())
        assert signal.getsignal(signum) is handler
    finally:
        signal.signal(signum, before)
    assert caught.value.exit_code == code
    assert cleaned == [True]


def test_without_a_signal_the_result_comes_back() -> None:
    """So do the run's own exceptions."""

    async def run(value: int) -> int:
        await asyncio.sleep(0)
        return 1 // value

    assert run_until_signal(run(1)) == 1
    with pytest.raises(ZeroDivisionError):
        run_until_signal(run(0))
