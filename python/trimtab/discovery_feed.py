"""What a gateway says about a role, kept fresh by a thread.

The thread asks ``GET /<role>/engines?wait_seq=N``, which a gateway answers when its document is no longer number N, so
that a change is known within a round trip and nothing is asked while nothing changes. A gateway that does not wait is
asked once a second. It is a thread also for coroutines: an RL process blocks its loop for seconds.

Readers take one immutable :class:`Directory`, which is swapped whole.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from trimtab._core import RoutingTable
from trimtab.errors import RouterUnreachable, TrimtabError, error_of
from trimtab.wire import RetryPolicy, Target

__all__ = ["Directory", "DiscoveryFeed"]

logger = logging.getLogger(__name__)

_WAIT_MS = 5_000
_POLL_S = 1.0
_NOT_MODIFIED, _OK = 304, 200


@dataclass(frozen=True)
class Directory:
    """One discovery document.

    Attributes:
        document: As the gateway gave it.
        table: Its routing rules.
        tag: Its ``ETag``.
    """

    document: Mapping[str, Any]
    table: RoutingTable
    tag: str | None

    @property
    def role(self) -> str:
        """The role."""
        return str(self.document.get("role", ""))

    @property
    def stale(self) -> bool:
        """The gateway has lost sight of its engines."""
        return bool(self.document.get("stale"))

    def model(self, name: str) -> Mapping[str, Any]:
        """What it says about a model."""
        described: Mapping[str, Any] = self.document["models"][name]
        return described

    def engines(self, name: str) -> list[Mapping[str, Any]]:
        """The engines of a model. Workers of a prefill/decode pair are none: nobody may call one alone."""
        return list(self.model(name).get("engines", ()))


class DiscoveryFeed:
    """The newest document of one role."""

    def __init__(self, target: Target, path: str, policy: RetryPolicy) -> None:
        self._target = target
        self._path = path
        self._policy = policy
        self._client = self._new_client()
        self._stop = threading.Event()
        self._directory: Directory | None = None

    def open(self) -> Directory:
        """Reads the first document and starts the thread.

        Raises:
            RouterUnreachable: No document within the retry horizon.
            TrimtabError: What the gateway refused.
        """
        deadline = time.monotonic() + self._policy.horizon_s
        attempt = 0
        while True:
            try:
                directory = self.refresh()
                break
            except RouterUnreachable:
                pause = self._policy.delay_s(attempt)
                if time.monotonic() + pause > deadline:
                    raise
                attempt += 1
                time.sleep(pause)
        threading.Thread(target=self._follow, name=f"trimtab-discovery-{directory.role}", daemon=True).start()
        return directory

    @property
    def current(self) -> Directory:
        """The newest document."""
        if self._directory is None:
            msg = "the client is not open: use it in `with` or `async with`"
            raise RuntimeError(msg)
        return self._directory

    def refresh(self) -> Directory:
        """Asks now, and waits for nothing. Thread-safe. Raises as :meth:`open`, after one attempt."""
        return self._fetch(self._client, wait=False) or self.current

    def close(self) -> None:
        """Ends the thread, as soon as its call ends. Idempotent."""
        self._stop.set()
        self._client.close()

    def _new_client(self) -> httpx.Client:
        # An inherited proxy would answer for the gateway.
        return httpx.Client(
            base_url=self._target.url, headers=self._target.headers, trust_env=False, verify=self._target.is_tls
        )

    def _follow(self) -> None:
        with self._new_client() as client:
            failures = 0
            while not self._stop.is_set():
                before, began = self._directory, time.monotonic()
                try:
                    # After a failure the gateway may be another process, whose numbers begin anew.
                    self._fetch(client, wait=failures == 0)
                except TrimtabError as error:
                    if failures == 0:
                        logger.warning("discovery at %s%s: %s", self._target.url, self._path, error)
                    self._stop.wait(self._policy.delay_s(failures))
                    failures += 1
                    continue
                except Exception:
                    logger.exception("discovery at %s%s", self._target.url, self._path)
                    self._stop.wait(_POLL_S)
                    continue
                waited = time.monotonic() - began > _POLL_S / 2
                if failures == 0 and self._directory is before and not waited:
                    self._stop.wait(_POLL_S)
                failures = 0

    def _fetch(self, client: httpx.Client, *, wait: bool) -> Directory | None:
        known = self._directory
        query: dict[str, str] = {}
        headers: dict[str, str] = {}
        if known is not None and known.tag is not None:
            headers["If-None-Match"] = known.tag
        if wait and known is not None:
            query = {"wait_seq": str(known.document.get("snapshot_seq", 0)), "wait_ms": str(_WAIT_MS)}
        timeout = httpx.Timeout(self._policy.timeout_s, read=self._policy.timeout_s + _WAIT_MS / 1000)
        try:
            reply = client.get(self._path, params=query, headers=headers, timeout=timeout)
        except httpx.TransportError as error:
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise RouterUnreachable(f"no discovery document from {self._target.url}{self._path}: {text}") from error
        if reply.status_code == _NOT_MODIFIED and known is not None:
            return None
        document = _read(reply, f"{self._target.url}{self._path}")
        if known is not None and document == known.document:
            return None
        directory = Directory(document, RoutingTable.from_discovery(document), reply.headers.get("etag"))
        self._directory = directory
        return directory


def _read(reply: httpx.Response, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(reply.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RouterUnreachable(f"{where} answers {reply.status_code} without a JSON object: is it a trimtab gateway?")
    if reply.status_code == _OK and isinstance(document.get("models"), dict):
        return document
    error = document.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        raise RouterUnreachable(f"{where} answers {reply.status_code} and no discovery document")
    raise error_of(error["code"], str(error.get("message", "")), retryable=error.get("retryable") is True)
