"""``RouterAdmin``: a controller's side of a router, blocking."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from trimtab.errors import BackendBusy, InvalidRequest
from trimtab.sender_link import only_pool
from trimtab.transport import SyncTransport
from trimtab.wire import MAX_WAIT_S, Call, RetryPolicy, Target, exchange, pool_path, without_nones

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RouterAdmin"]


class RouterAdmin:
    """Registers backends, fences owners and drives weight updates. Blocking and thread-safe, for a controller's thread.

    Every call is idempotent, and is sent again after connection errors, timeouts and 502, 503 and 504. Answers are the
    JSON objects of the lease API (see its OpenAPI document). After the first answer every call expects the same start
    of the router: a controller that fenced must not go on with a router that has forgotten it (``RouterRestarted``).

    Example:
        >>> def update(admin: RouterAdmin) -> None:
        ...     admin.fence("train", "sender_pause")
        ...     admin.begin_update("u-42", to=42)  # before the first engine is paused
        ...     admin.drain("u-42", timeout=300)
        ...     admin.end_server_pause("u-42")
        ...     admin.publish("u-42", 42)
        ...     admin.ack("train", 42)
        ...     admin.unfence("train", "sender_pause")
    """

    def __init__(
        self, url: str, *, pool: str | None = None, key: str | None = None, retry: RetryPolicy | None = None
    ) -> None:
        """Prepares a client; the first call connects.

        Args:
            url: The router, ``http[s]://host:port`` or ``unix:///path`` of its lease socket.
            pool: ``role/model``; not needed when the router has one pool.
            key: The admin key.
            retry: When calls are sent again.

        Raises:
            InvalidRequest: The URL or the key breaks a rule.
        """
        self._target = Target(url, key)
        self._policy = retry or RetryPolicy()
        self._transport = SyncTransport(self._target, self._policy)
        self._pool = pool
        self._router: str | None = None

    def pools(self) -> list[dict[str, Any]]:
        """How every pool of the router stands."""
        return list(self._run(Call("GET", "/v1/router/pools"))["pools"])

    def status(self, *, since: int | None = None, wait: float = 0) -> dict[str, Any]:
        """How the pool stands: state, version, update, failure, backends, owners, senders, counts.

        Args:
            since: Answer once the pool's ``revision`` is above this.
            wait: Seconds to wait for that, 30 at most.
        """
        self._check_wait("wait", wait)
        query = without_nones(since_gen=since, wait_ms=int(wait * 1000) or None)
        return self._run(Call("GET", self._path() + _query(query), wait_s=wait))

    def add_backends(self, backends: Sequence[Mapping[str, Any]], *, replace: bool = False) -> list[dict[str, Any]]:
        """Registers all of a list, or nobody.

        Args:
            backends: Each with ``address`` and ``capacity``, and optionally ``id`` and ``weight_version``.
            replace: Whether the capacity of a registered backend may change.

        Raises:
            InvalidAddress, InvalidCapacity, IdempotencyConflict: The message names the value and the rule.
        """
        body = {"backends": [dict(backend) for backend in backends], "replace": replace}
        return list(self._post(body, "backends")["backends"])

    def remove_backend(self, id: str, *, generation: int | None = None, timeout: float = 0) -> dict[str, Any]:  # noqa: A002 - its own name for it
        """Drains a backend, and removes it once nothing runs on it.

        Args:
            id: Its id.
            generation: Only this incarnation of it.
            timeout: Seconds to wait for its executions.

        Raises:
            BackendBusy: Executions are outstanding on it; it is draining.
            UnknownBackend: No such backend, or another incarnation.
        """
        deadline = time.monotonic() + timeout
        while True:
            wait_s = min(MAX_WAIT_S, max(0.0, deadline - time.monotonic()))
            query = without_nones(
                generation=generation, drain_ms=int(wait_s * 1000) or None, expect_incarnation=self._router
            )
            call = Call("DELETE", self._path("backends", id) + _query(query), wait_s=wait_s)
            try:
                return self._run(call)
            except BackendBusy:
                if time.monotonic() >= deadline:
                    raise

    def attach_owner(self, owner: str, version: int | None = None) -> dict[str, Any]:
        """Makes an owner known. With a version it acknowledges that one; a new owner without one the published one."""
        return self._post({"owner": owner, "version": version}, "owners")

    def ack(self, owner: str, version: int) -> dict[str, Any]:
        """Reports that the processes of an owner know a version.

        Raises:
            InvalidRequest: No such owner.
        """
        return self._post({"version": version}, "owners", owner, "ack")

    def fence(self, owner: str, reason: str) -> dict[str, Any]:
        """Adds a reason for which nothing is granted to an owner. When it has returned, nothing is.

        Raises:
            InvalidRequest: No such owner.
        """
        return self._post({"owner": owner, "reason": reason, "op_id": uuid.uuid4().hex}, "fence")

    def unfence(self, owner: str, reason: str) -> dict[str, Any]:
        """Takes a reason away; without any left, what waits is granted in order.

        Raises:
            InvalidRequest: No such owner.
            PoolFailed, PoolClosed: Nothing is granted any more.
        """
        return self._post({"owner": owner, "reason": reason, "op_id": uuid.uuid4().hex}, "unfence")

    def begin_update(
        self, update_id: str, *, to: int | None = None, kind: Literal["weights", "offload", "pause"] = "weights"
    ) -> dict[str, Any]:
        """Begins an update: nothing is granted from now on. It must have returned before the first engine is paused.

        Raises:
            UpdateInProgress, IdempotencyConflict, VersionRegression, PoolFailed, PoolClosed: As they say.
        """
        return self._post({"update_id": update_id, "to_version": to, "kind": kind}, "updates")

    def drain(self, update_id: str, *, timeout: float = 300) -> dict[str, Any]:
        """Waits until nothing is outstanding any more.

        Args:
            update_id: The update.
            timeout: Seconds after which the drain has failed.

        Raises:
            DrainTimeout: Executions were outstanding; ``detail`` names the oldest, or the engines that still run
                something that no lease stands for.
            UnknownUpdate, InvalidTransition, PoolFailed, PoolClosed: It cannot be drained.
        """
        if not 0 <= timeout < float("inf"):
            raise InvalidRequest(f"timeout is {timeout}: it must be a finite number of seconds, 0 or more")
        deadline = time.monotonic() + timeout
        while True:
            # A little beyond the deadline, so that it is the router who says that time is up.
            wait_s = min(MAX_WAIT_S, max(0.0, deadline - time.monotonic()) + 1.0)
            body = {"timeout_ms": int(timeout * 1000), "wait_ms": int(wait_s * 1000)}
            answer = self._post(body, "updates", update_id, "drain", wait_s=wait_s)
            if answer["phase"] != "quiescing":
                return answer
            # The router leaves when it answers before its time; the next call says so.
            time.sleep(self._policy.delay_s(0))

    def end_server_pause(self, update_id: str) -> dict[str, Any]:
        """Reports that the engines serve again. Nothing is granted by it before the version is published."""
        return self._post({}, "updates", update_id, "resume")

    def publish(self, update_id: str, version: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Publishes the version that the engines run now: after a successful drain of the update, or as the first one.

        Raises:
            VersionRegression, InvalidTransition, IdempotencyConflict, UpdateInProgress, UnknownUpdate: As they say.
        """
        return self._post({"version": version, "epoch": epoch}, "updates", update_id, "publish")

    def cancel_update(self, update_id: str) -> dict[str, Any]:
        """Ends an offload, a pause, or an update of weights that is not drained yet, without a new version."""
        return self._post({}, "updates", update_id, "cancel")

    def fail_update(self, update_id: str, reason: str) -> dict[str, Any]:
        """Ends an update that failed: the pool fails."""
        return self._post({"reason": reason}, "updates", update_id, "fail")

    def fail_pool(self, reason: str) -> dict[str, Any]:
        """Fails the pool for good: what waits and what comes gets ``PoolFailed``. The first cause stays."""
        return self._post({"reason": reason}, "fail")

    def close_pool(self, reason: str | None = None) -> dict[str, Any]:
        """Closes the pool for good: what waits and what comes gets ``PoolClosed``."""
        return self._post({"reason": reason}, "close")

    def close(self) -> None:
        """Closes the connections; the pool goes on."""
        self._transport.close()

    def _post(self, body: Mapping[str, Any], *names: str, wait_s: float = 0.0) -> dict[str, Any]:
        path = self._path(*names)
        return self._run(Call("POST", path, without_nones(**body, expect_incarnation=self._router), wait_s))

    def _run(self, call: Call) -> dict[str, Any]:
        answer = self._transport.run(exchange(call, self._policy, time.monotonic))
        self._router = self._router or answer.get("incarnation")
        return answer

    def _path(self, *names: str) -> str:
        if self._pool is None:
            self._pool = self._transport.run(only_pool(self._policy))
        return pool_path(self._pool, *names)

    @staticmethod
    def _check_wait(name: str, wait: float) -> None:
        if not 0 <= wait <= MAX_WAIT_S:
            raise InvalidRequest(f"{name} is {wait}: it must be between 0 and {MAX_WAIT_S:g} seconds")

    def __repr__(self) -> str:
        return f"RouterAdmin({self._target.url!r}, pool={self._pool!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _query(members: Mapping[str, Any]) -> str:
    return "?" + "&".join(f"{name}={value}" for name, value in members.items()) if members else ""
