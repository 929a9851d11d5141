"""``DirectClient``: requests straight to the engines, placed and counted by the gateway, for coroutines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from trimtab.classification import classify
from trimtab.client import RouterClient
from trimtab.direct_answer import DirectAnswer, judge, settle
from trimtab.direct_plan import Plan, check_direct, check_granted, plan
from trimtab.direct_settings import ABORT_GRACE_S, BEFORE_SENDING, DISCOVERY_LAG_S, Settings, broken, not_listed
from trimtab.direct_stream import DirectStream
from trimtab.errors import NotDirect, StaleDiscovery
from trimtab.transport import httpx

if TYPE_CHECKING:
    from typing_extensions import Self

    from trimtab._core import Route
    from trimtab.lease_record import RouterLease
    from trimtab.wire import RetryPolicy

__all__ = ["DirectClient"]

logger = logging.getLogger(__name__)


class DirectClient:
    """Calls the engines of one role directly: discovery, routing, lease, call, settlement.

    Example:
        >>> async def turn(prompt: str) -> str:
        ...     async with DirectClient("http://10.0.0.1:8000/rollout", owner="train", key=KEY) as direct:
        ...         answer = await direct.post("/generate", {"text": prompt}, session="traj-17", wait=60)
        ...         return f"{answer.json()['text']} (version {answer.weight_version})"

    Models, route keys and the default are resolved by the gateway's own rules, from its discovery document, which a
    thread keeps fresh. A generation is sent once, to one engine, and never again by trimtab.
    """

    def __init__(
        self,
        url: str,
        *,
        owner: str = "default",
        sender: str | None = None,
        key: str | None = None,
        client_key: str | None = None,
        engine_key: str | None = None,
        fallback: Literal["gateway"] | None = None,
        retry: RetryPolicy | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        """Prepares a client; ``async with`` opens it.

        Args:
            url: The role at its gateway, ``http[s]://host:port/role``; without a role, the only one.
            owner: The group whose fences and acknowledgements hold for this client.
            sender: Name of this process among the router's clients. Default: made of host and process id.
            key: The admin key, for leases.
            client_key: For discovery and the fallback. Default: ``key``.
            engine_key: What the engines ask for (SGLang's ``--api-key``).
            fallback: ``gateway`` sends a request through the gateway when it cannot be sent directly, as long as no
                byte of it was written. By default that is an error.
            retry: When calls to the gateway are sent again.
            connect_timeout_s: To connect to an engine. Its answer may take as long as it takes.

        Raises:
            InvalidRequest: An argument breaks a rule.
        """
        self._settings = Settings(
            url,
            owner=owner,
            sender=sender,
            key=key,
            client_key=client_key,
            engine_key=engine_key,
            fallback=fallback,
            retry=retry,
            connect_timeout_s=connect_timeout_s,
        )
        self._feed = self._settings.feed()
        self._routers: dict[str, RouterClient] = {}
        self._attaching = asyncio.Lock()
        self._http: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Reads the discovery document. ``async with`` does it.

        Raises:
            RouterUnreachable: The gateway gave none within the retry horizon.
            TrimtabError: What it refused.
        """
        await asyncio.to_thread(self._feed.open)
        self._http = httpx.AsyncClient(**self._settings.engine_options())

    async def close(self) -> None:
        """Detaches from every pool and closes the connections. Idempotent."""
        routers, self._routers = list(self._routers.values()), {}
        self._feed.close()
        for router in routers:
            await router.close()
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        session: str | None = None,
        wait: float = 0.0,
        expect_version: int | None = None,
    ) -> DirectAnswer:
        """Sends one request to one engine and waits for its whole answer.

        Args:
            path: ``/generate``, ``/v1/chat/completions``, ``/v1/completions``, ``/v1/embeddings``, ``/v1/score``,
                ``/v1/rerank`` or ``/v1/responses``.
            payload: The JSON object; ``model`` and ``route_key`` choose the model, an absent ``rid`` is filled in.
            session: Key of the trajectory; its requests stay on one engine.
            wait: Seconds to wait for what can be waited for: a fence, an update, capacity, an engine.
            expect_version: The only weight version it may run on.

        Returns:
            The engine's answer, also when it is 4xx or 5xx.

        Raises:
            RoutingError: The payload names no model that is served.
            NotDirect, StaleDiscovery, NoEligibleBackend: It may not, or cannot now, be sent directly.
            EngineUnreachable: Not sent; another attempt cannot run it twice.
            EngineBroken: Nobody knows whether it ran. The lease is ambiguous.
            Fenced, NotServing, VersionNotAcked, AtCapacity: What it waited for, after ``wait``.
            RouterRestarted, RouterUnreachable, PoolFailed, PoolClosed: As they say.
        """
        request = plan(self._feed.current, path, payload, session)
        answer: DirectAnswer | None = None
        try:
            async with self._leased(request, wait, expect_version) as lease:
                answer = await self._execute(request, lease)
        except BEFORE_SENDING as error:
            # With an answer it has run, and the router was out of reach only for its settlement.
            if self._settings.fallback is None or answer is not None:
                raise
            logger.info("through the gateway: %s", error)
        else:
            return answer
        headers = self._settings.gateway_headers(request, wait, expect_version)
        reply = await self._opened().post(self._settings.gateway_url(path), json=dict(payload), headers=headers)
        return DirectAnswer.of_gateway(reply.status_code, reply.headers, reply.content, request.route.model)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        session: str | None = None,
        wait: float = 0.0,
        expect_version: int | None = None,
    ) -> AsyncIterator[DirectStream]:
        """Sends one request and gives its answer as it comes; ``async for chunk in answer.chunks()``.

        Arguments and errors are those of :meth:`post`; there is no fallback. Whoever leaves the block before the end
        has the request aborted. ``EngineBroken`` comes out of ``chunks()``, too.
        """
        request = plan(self._feed.current, path, payload, session)
        async with self._leased(request, wait, expect_version) as lease:
            answer: DirectStream | None = None
            call = self._opened().stream(
                "POST", lease.url + path, content=request.body, headers=self._settings.engine_headers(request)
            )
            try:
                async with call as reply:
                    answer = DirectStream(reply, lease, request.route.model)
                    yield answer
            except httpx.HTTPError as error:
                if answer is not None and error is not answer.failure:
                    raise  # an error of the caller's own
                raise await self._broken(request, lease, error) from error
            finally:
                if lease.outcome is None:
                    verdict = None if answer is None else answer.verdict()
                    if answer is None or verdict is None:
                        await self._leave(request, lease)
                    else:
                        settle(lease, verdict, answer.status)

    async def close_session(self, session: str, payload: Mapping[str, Any] | None = None) -> tuple[bool, int]:
        """Forgets a session of the model that ``payload`` names (default: the default model).

        Returns:
            Whether it was known, and how many of its leases are still open.
        """
        route = self._feed.current.table.resolve(payload or {})
        return await (await self._router(route.model)).close_session(session)

    @asynccontextmanager
    async def _leased(self, request: Plan, wait: float, expect_version: int | None) -> AsyncIterator[RouterLease]:
        """A lease on an engine that may be called."""
        route = request.route
        try:
            check_direct(self._feed.current, route)
        except (StaleDiscovery, NotDirect):
            check_direct(await asyncio.to_thread(self._feed.refresh), route)
        router = await self._router(route.model)
        rid = request.request_ids or None
        async with router.lease(request.session, wait=wait, expect_version=expect_version, rid=rid) as lease:
            try:
                await self._confirm(route, lease)
            except BaseException:
                lease.settle("not_sent")
                raise
            yield lease

    async def _confirm(self, route: Route, lease: RouterLease) -> None:
        if check_granted(self._feed.current, route, lease):
            return
        for pause_s in DISCOVERY_LAG_S:
            await asyncio.sleep(pause_s)
            if check_granted(await asyncio.to_thread(self._feed.refresh), route, lease):
                return
        raise not_listed(lease)

    async def _execute(self, request: Plan, lease: RouterLease) -> DirectAnswer:
        try:
            reply = await self._opened().post(
                lease.url + request.path, content=request.body, headers=self._settings.engine_headers(request)
            )
        except httpx.HTTPError as error:
            raise await self._broken(request, lease, error) from error
        except asyncio.CancelledError:
            await self._leave(request, lease)
            raise
        answer = DirectAnswer.of_lease(reply.status_code, reply.headers, reply.content, request.route.model, lease)
        settle(lease, judge(answer), answer.status)
        return answer

    async def _broken(self, request: Plan, lease: RouterLease, error: httpx.HTTPError) -> Exception:
        outcome = classify(error)
        # Settled first: whoever is interrupted meanwhile must not make it something that is known.
        failure = broken(request, lease, error, outcome)
        if outcome != "not_sent":
            # It may still be running; whether it ran stays unknown.
            await self._abort(request, lease)
        return failure

    async def _leave(self, request: Plan, lease: RouterLease) -> None:
        """Ends an execution that its caller gave up; only a confirmed abort is an end that is known."""
        confirmed = False
        try:
            confirmed = await self._abort(request, lease)
        finally:
            # Also when the caller is interrupted a second time.
            lease.settle("cancelled" if confirmed else "ambiguous")

    async def _abort(self, request: Plan, lease: RouterLease) -> bool:
        """Ends what was sent; whether the engine confirmed it."""
        if not request.request_ids:
            return False
        try:
            for rid in request.request_ids:
                reply = await self._opened().post(
                    f"{lease.url}/abort_request",
                    json={"rid": rid},
                    headers=self._settings.engine_key_header(),
                    timeout=ABORT_GRACE_S,
                )
                if not reply.is_success:
                    return False
        except httpx.HTTPError:
            return False
        return True

    async def _router(self, model: str) -> RouterClient:
        async with self._attaching:
            router = self._routers.get(model)
            if router is None:
                router = RouterClient(**self._settings.router_options(self._feed.current.role, model))
                await router.open()
                self._routers[model] = router
            return router

    def _opened(self) -> httpx.AsyncClient:
        if self._http is None:
            msg = "the client is not open: use it with `async with`"
            raise RuntimeError(msg)
        return self._http

    def __repr__(self) -> str:
        return f"DirectClient({self._settings.url!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
