"""An engine's answer as it comes, and how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping

from trimtab.direct_answer import DirectAnswer, Verdict, judge
from trimtab.lease_record import RouterLease
from trimtab.transport import httpx

__all__ = ["DirectStream", "SyncDirectStream"]

_EVENT_END = b"\n\n"
# The finish reason stands in the last events: before `[DONE]`, and in some before the one with the usage.
_LAST_EVENTS = 4
_CLIENT_ERROR = 400


class _Stream:
    """What both forms have in common.

    Attributes:
        status: HTTP status.
        headers: The engine's headers.
        model: The model that answers.
        backend_id: The engine that answers.
        lease_id: The lease it runs under.
        session: The session it belongs to.
        weight_version: The weights it runs on: label its tokens with it.
        failure: What ended it too early.
    """

    def __init__(self, reply: httpx.Response, lease: RouterLease, model: str) -> None:
        self.status = reply.status_code
        self.headers: Mapping[str, str] = reply.headers
        self.model = model
        self.backend_id = lease.backend_id
        self.lease_id = lease.id
        self.session = lease.session
        self.weight_version = lease.weight_version
        self.failure: httpx.HTTPError | None = None
        self._reply = reply
        self._lease = lease
        self._events: deque[bytes] = deque(maxlen=_LAST_EVENTS)
        self._rest = bytearray()
        self._is_events = reply.headers.get("content-type", "").startswith("text/event-stream")
        self._ended = False

    def verdict(self) -> Verdict | None:
        """How it ended; ``None`` when it was left before its end."""
        if self.status >= _CLIENT_ERROR:
            # Its status has said it all, whether or not somebody read the words.
            return self._judge(b"")
        if not self._ended:
            return None
        if not self._is_events:
            return self._judge(bytes(self._rest))
        found = [self._judge(event.removeprefix(b"data:").strip()) for event in self._events]
        tokens = [verdict.output_tokens for verdict in found if verdict.output_tokens is not None]
        versions = [verdict.observed_weight_version for verdict in found if verdict.observed_weight_version]
        aborted = any(verdict.outcome == "aborted" for verdict in found)
        return Verdict(
            "aborted" if aborted else "completed", tokens[-1] if tokens else None, versions[-1] if versions else None
        )

    def _judge(self, body: bytes) -> Verdict:
        return judge(DirectAnswer.of_lease(self.status, {}, body, self.model, self._lease))

    def _note(self, chunk: bytes) -> None:
        self._rest += chunk
        if self._is_events and _EVENT_END in self._rest:
            *events, rest = self._rest.split(_EVENT_END)
            self._events.extend(bytes(event) for event in events[-_LAST_EVENTS:])
            self._rest = bytearray(rest)


class DirectStream(_Stream):
    """An answer for coroutines."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come; can be read once."""
        try:
            async for chunk in self._reply.aiter_bytes():
                self._note(chunk)
                yield chunk
        except httpx.HTTPError as error:
            self.failure = error
            raise
        self._ended = True


class SyncDirectStream(_Stream):
    """An answer for threads."""

    def chunks(self) -> Iterator[bytes]:
        """The body's bytes as they come; can be read once."""
        try:
            for chunk in self._reply.iter_bytes():
                self._note(chunk)
                yield chunk
        except httpx.HTTPError as error:
            self.failure = error
            raise
        self._ended = True
