"""The lease API over HTTP: how a coroutine and a thread carry out the steps of an exchange.

httpx, since it serves coroutines and threads with one interface and one set of exceptions, and is small and typed. It
is the extra ``trimtab[client]``, so that a process that only routes in process installs nothing.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from trimtab.wire import Call, Pause, Reply, RetryPolicy, Steps, Target, TransportFault

try:
    import httpx
except ModuleNotFoundError as missing:  # pragma: no cover - the tests install it
    msg = "the clients of the lease API need httpx: pip install 'trimtab[client]'"
    raise ModuleNotFoundError(msg, name=missing.name) from missing

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncTransport", "SyncTransport", "httpx"]

T = TypeVar("T")

# A parked acquire occupies its connection, so their number is that of the parked acquires: the router sets the limit.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64)


def _timeout(call: Call, policy: RetryPolicy) -> httpx.Timeout:
    return httpx.Timeout(policy.timeout_s, read=policy.timeout_s + call.wait_s)


def _trusted(target: Target) -> ssl.SSLContext | bool:
    # What the system trusts, or SSL_CERT_FILE names; httpx's own list knows no private authority. Without TLS nothing is
    # verified, and reading the certificates would take 20 ms.
    return ssl.create_default_context() if target.is_tls else False


def _fault(error: httpx.TransportError) -> TransportFault:
    return TransportFault(f"{type(error).__name__}: {error}".rstrip(": "))


class SyncTransport:
    """Carries out steps on the calling thread. Thread-safe."""

    def __init__(self, target: Target, policy: RetryPolicy) -> None:
        self._policy = policy
        # An inherited proxy would answer for the router.
        self._client = httpx.Client(
            base_url=target.url, headers=target.headers, limits=_LIMITS, trust_env=False, verify=_trusted(target)
        )

    def run(self, steps: Steps[T], pause: Callable[[float], None] = time.sleep) -> T:
        """The end of ``steps``, or what they or ``pause`` raise."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    pause(step.seconds)
                    step = next(steps)
                    continue
                try:
                    reply = self._client.request(
                        step.method, step.path, json=step.body, timeout=_timeout(step, self._policy)
                    )
                except httpx.TransportError as error:
                    step = steps.throw(_fault(error))
                else:
                    step = steps.send(Reply(reply.status_code, reply.content))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncTransport:
    """Carries out steps on the event loop; belongs to the loop that uses it first."""

    def __init__(self, target: Target, policy: RetryPolicy) -> None:
        self._policy = policy
        self._client = httpx.AsyncClient(
            base_url=target.url, headers=target.headers, limits=_LIMITS, trust_env=False, verify=_trusted(target)
        )

    async def run(self, steps: Steps[T]) -> T:
        """The end of ``steps``, or what they raise."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    reply = await self._client.request(
                        step.method, step.path, json=step.body, timeout=_timeout(step, self._policy)
                    )
                except httpx.TransportError as error:
                    step = steps.throw(_fault(error))
                else:
                    step = steps.send(Reply(reply.status_code, reply.content))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
