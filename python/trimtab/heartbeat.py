"""Signs of life on a thread of their own.

A router takes a sender that is silent for too long for lost, and everything it holds for ambiguous. An RL process
blocks its event loop for seconds (tokenising, saving, importing), so its heart must not beat there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trimtab.errors import RouterUnreachable

__all__ = ["Heartbeat"]

logger = logging.getLogger(__name__)


class Heartbeat:
    """Calls a function again and again until it is stopped.

    A call that raises is logged and does not end it: the next one may succeed.
    """

    def __init__(
        self, beat: Callable[[], object], interval_s: float, *, name: str, retry_s: float | None = None
    ) -> None:
        """Starts to call ``beat`` every ``interval_s`` seconds, on a daemon thread called ``name``.

        After ``RouterUnreachable`` the next call comes after ``retry_s`` seconds: the router is counting the silence.
        """
        self._beat = beat
        self._interval_s = interval_s
        self._retry_s = interval_s if retry_s is None else min(interval_s, retry_s)
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def soon(self) -> None:
        """Makes the next call happen now."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the calls, and waits for the one that runs. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        pause_s = self._interval_s
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._stopping:
                return
            pause_s = self._interval_s
            try:
                self._beat()
            except RouterUnreachable as error:
                logger.warning("%s: %s", self._thread.name, error)
                pause_s = self._retry_s
            except Exception as error:  # noqa: BLE001 - whatever is wrong now, the sender is alive
                logger.warning("%s: %s: %s", self._thread.name, type(error).__name__, error)
