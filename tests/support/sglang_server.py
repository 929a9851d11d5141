"""One real SGLang server as a process that cannot outlive the test run.

The fixtures over it are in ``tests/support/sglang.py``. Which facts of SGLang this relies on:
``tests/sglang_cpu/README.md``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.metrics import sum_metric
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = REPOSITORY / "tests" / "sglang_cpu"
SERVED_MODEL = "tiny"
START_DEADLINE_S = 240.0
TERM_DEADLINE_S = 20.0
KILL_DEADLINE_S = 10.0
CALL_TIMEOUT_S = 60.0
LOG_LINES = 50


class SglangError(RuntimeError):
    """A server did not start, did not stop, or refused a control call. The message carries the evidence."""


@dataclass(frozen=True)
class Installation:
    """The interpreter of the SGLang environment and one model folder per seed (0 and 1)."""

    python: Path
    models: tuple[Path, ...]


class SglangServer:
    """One SGLang server process and its children, in a session of their own.

    ``start`` returns at once; ``wait_ready`` waits for a 200 from ``/health``, which has SGLang generate a token. Start
    it from a thread that lives as long as the server: on Linux the kernel kills the server when that thread ends, which
    is what keeps a crashed test run from leaving engines behind.
    """

    def __init__(self, installation: Installation, *, log: Path, flags: tuple[str, ...] = ()) -> None:
        self._installation = installation
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log
        self.port, self._nccl_port = free_ports(2)

    @property
    def authority(self) -> str:
        """``host:port``: the backend id that a gateway gives to this engine by default."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://{self.authority}"

    @property
    def pid(self) -> int:
        """The main process, which is also the leader of the servers' process group and session."""
        if self._process is None:
            raise SglangError("the server was not started")
        return self._process.pid

    def start(self) -> None:
        """Spawn the server; its output goes to ``log``, never into a pipe that nobody reads."""
        command = [sys.executable, str(RECIPE / "serve.py"), str(self._installation.models[0]), str(self.port)]
        command += ["--python", str(self._installation.python), "--die-with", str(os.getpid())]
        command += ["--nccl-port", str(self._nccl_port), *self._flags]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_ready(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait for ``/health`` 200. Raises ``SglangError`` with the end of the log when it exits or never answers."""
        started = time.monotonic()
        while True:
            if not self.running():
                raise SglangError(self._diagnosis(f"exited with {self.exit_status()} while it started"))
            if self.health() == 200:
                return
            if time.monotonic() - started > deadline_s:
                raise SglangError(self._diagnosis(f"was not healthy after {deadline_s:.0f} s"))
            time.sleep(0.25)

    def running(self) -> bool:
        """Whether the main process lives."""
        return self._process is not None and self._process.poll() is None

    def exit_status(self) -> int | None:
        """Exit status of the main process (negative: the signal), ``None`` while it lives."""
        return self._process.poll() if self._process is not None else None

    def health(self) -> int | None:
        """Status of ``/health`` (it takes a second: one token is generated), or ``None`` when nothing answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=25) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def call(self, path: str, body: object = None, *, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """GET ``path``, or POST ``body`` as JSON; the decoded answer, or its text when it is not JSON.

        Raises ``SglangError`` with status and answer when the status is not 2xx.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers={"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise SglangError(f"{path} of {self.url}: {error.code} {error.read().decode(errors='replace')}") from error
        try:
            return json.loads(text)
        except ValueError:
            return text

    def generate(self, body: dict[str, Any]) -> Any:
        """POST ``/generate`` directly, past any gateway: the reference of a differential test."""
        return self.call("/generate", body)

    def slow_down(self, seconds: float | None) -> None:
        """Sleep ``seconds`` before every forward step, so that a request stays in flight; ``None`` ends it."""
        self.call("/slow_down", {"forward_sleep_time": seconds})

    def requests_in_flight(self) -> int:
        """Requests that the scheduler runs or queues, from the snapshot it publishes (at most 0.2 s old)."""
        loads = self.call("/v1/loads")["loads"]
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)

    async def idle(self, deadline_s: float = 10.0) -> None:
        """Wait until nothing runs and nothing is queued. Raises ``AssertionError`` after ``deadline_s``."""
        await self.in_flight(0, deadline_s)

    async def in_flight(self, count: int, deadline_s: float = 10.0) -> None:
        """Wait until exactly ``count`` requests run or are queued. Raises ``AssertionError`` after ``deadline_s``."""
        await wait_until(
            lambda: self.requests_in_flight() == count, f"{count} requests in {self.url}", deadline_s=deadline_s
        )

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric, for instance ``sglang:generation_tokens_total``."""
        return sum_metric(str(self.call("/metrics")), name, **labels)

    def reset(self) -> None:
        """Back to the state after the start: not paused, nothing running, no cache, weights of seed 0."""
        if not self.running():
            raise SglangError(self._diagnosis(f"exited with {self.exit_status()} in an earlier test"))
        self.call("/continue_generation", {})
        self.slow_down(None)
        self.call("/abort_request", {"abort_all": True})
        self.call("/flush_cache?timeout=20", {})
        origin = str(self._installation.models[0])
        info = self.call("/model_info")
        # A disk update renames the served model to its path, so it is done only after a test that changed the weights.
        if info["model_path"] != origin or info["weight_version"] != "default":
            self.call("/update_weights_from_disk", {"model_path": origin, "weight_version": "default"})

    def kill(self) -> None:
        """``kill -9`` of the main process, as the kernel would do it; its children notice and follow."""
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the server: SIGTERM, 20 s, SIGKILL; then check that no process of its session is left."""
        stop_servers([self])

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _diagnosis(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(lines[-LOG_LINES:])
        return f"SGLang at {self.url} (pid {self.pid}) {what}. The last lines of {self.log}:\n{tail}"


def start_servers(servers: list[SglangServer], deadline_s: float = START_DEADLINE_S) -> None:
    """Start all at the same moment and wait for all; on failure stop them and raise the first diagnosis."""
    started = time.monotonic()
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready(deadline_s - (time.monotonic() - started))
    except BaseException:
        stop_servers([server for server in servers if server.exit_status() is not None or server.running()])
        raise


def stop_servers(servers: list[SglangServer], term_deadline_s: float = TERM_DEADLINE_S) -> None:
    """Stop all at the same moment; SIGKILL after ``term_deadline_s``.

    Raises:
        SglangError: it names every process that could not be ended.
    """
    for server in servers:
        if server.running():
            # Only to the main process: it tells its children. A signal to the group would make them crash first.
            os.kill(server.pid, signal.SIGTERM)
    wait_for(lambda: not any(server.running() for server in servers), term_deadline_s)
    for server in servers:
        server._signal_group(signal.SIGKILL)
        for pid in session_members(server.pid):
            _kill_quietly(pid)
    wait_for(lambda: not any(server.running() or session_members(server.pid) for server in servers), KILL_DEADLINE_S)
    left = {server.url: session_members(server.pid) for server in servers if session_members(server.pid)}
    if left:
        raise SglangError(f"processes are left after SIGKILL: {left}")


def session_members(session: int) -> list[int]:
    """Live processes of a session, from ``/proc``; a zombie is dead and only waits to be collected."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # After the command, which may hold spaces and parentheses: state, ppid, pgrp, session, ...
                state, _, _, found, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(found) == session and state != "Z":
                members.append(int(entry.name))
    return members


def _kill_quietly(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], deadline_s: float, step_s: float = 0.05) -> bool:
    """Poll ``condition`` until it holds; whether it did before the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True
