"""The router process and an unreliable way to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
POOL = "/v1/router/pools/rollout/tiny"
STOP_DEADLINE_S = 20.0


class Router(contextlib.AbstractContextManager["Router"]):
    """The router process. Blocking; for one thread."""

    def __init__(self, engines: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.router.soak.router_process", *engines],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._connection = http.client.HTTPConnection("127.0.0.1", self._said(), timeout=30)

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def restart(self) -> None:
        """Cut every connection and start anew with empty tables."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        self._said()
        self._connection.close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer, which has to be a 200."""
        self._send(method, path, body)
        with self._connection.getresponse() as response:
            answer: dict[str, Any] = json.load(response)
        assert response.status == 200, answer
        return answer

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The answer to a POST, which has to be a 200."""
        return self.call("POST", path, body)

    def post_and_hang_up(self, path: str, **body: Any) -> None:
        """Send a request whose answer nobody will read; whether it is carried out is open, and when."""
        self._send("POST", path, body)
        self._connection.close()

    @property
    def resident_mib(self) -> float:
        """Its resident memory in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> None:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, POOL + path, text, {"content-type": "application/json"})

    def _said(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the router ended: exit status {self._process.wait()}"
        return int(line)
