"""The ``trimtab`` command.

What it needs is imported after its handlers of signals are set, so that Ctrl-C shows no traceback of an import.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_STDERR = 2


def main() -> None:
    """The console script."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_at_once)
    _fill_standard_descriptors()
    from trimtab.cli.commands import trimtab

    trimtab()


def end_at_once(number: int, frame: FrameType | None) -> None:
    """The handler of a process that has nothing to clean up: it exits with the code of a signal, 130 or 143."""
    del frame
    os._exit(128 + number)  # an exception would pass through the import that runs, which may print or swallow it


def _fill_standard_descriptors() -> None:
    """Open on nothing what the parent process closed of stdin, stdout and stderr.

    Otherwise a socket takes such a number: what is meant for stderr is written into it, and uvloop, which holds that
    impossible, aborts the process when it closes it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
