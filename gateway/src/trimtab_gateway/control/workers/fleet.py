"""Workers: the backends of the served pools, found by pool, id or URL, registered and removed."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from trimtab._core import normalize_address
from trimtab.errors import TrimtabError, UnknownBackend
from trimtab_gateway.control.fleet.routes import status_of_error
from trimtab_gateway.control.workers.refusal import Refusal
from trimtab_gateway.control.workers.registration import Registration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from trimtab._core import AddressRules, Backend, BackendStatistics, Pool
    from trimtab.fleet import FleetControl
    from trimtab_gateway.snapshot import ServedRole

_OVER = frozenset({"down", "half_open"})
"""Health of an engine that does not answer: when it announces itself again, it was started anew."""


@dataclass(frozen=True)
class Target:
    """One pool under its name."""

    role: str
    model: str
    pool: Pool
    is_lenient: bool
    router_url: str | None


@dataclass(frozen=True)
class Worker:
    """One backend incarnation, and what was said when it was registered (None: it stands in the configuration)."""

    id: str
    target: Target
    backend: BackendStatistics
    registration: Registration | None

    @property
    def url(self) -> str:
        """Its URL as whoever registered it wrote it."""
        return self.backend.url if self.registration is None else self.registration.url


Key = tuple[str, str, int]


class Workers:
    """The workers of one gateway.

    Args:
        roles: What is served.
        rules: Which addresses may be registered.
        engine_key: The key of the engines.
        engine_ca: File with what certificates of engines are checked against; None: the system's.
        is_own: Whether ``host:port`` is the gateway itself.
        manager: Who runs the engines, if anybody does: then they come and go by its hand, or its registry, its updates
            and the router would each know other engines.
    """

    def __init__(
        self,
        roles: tuple[ServedRole, ...],
        *,
        rules: AddressRules,
        engine_key: str | None,
        engine_ca: str | PathLike[str] | None,
        is_own: Callable[[str], bool],
        manager: Callable[[], FleetControl | None] = lambda: None,
    ) -> None:
        self._targets = tuple(
            Target(role.name, name, pool, role.lenient_model, role.router_urls.get(name))
            for role in roles
            for name, pool in role.models.items()
        )
        self._rules = rules
        self.engine_key = engine_key
        self.engine_ca = engine_ca
        self._is_own = is_own
        self._manager = manager
        # Another one with each start: an id of an earlier process names nothing.
        self._namespace = uuid.uuid4()
        self._registrations: dict[Key, Registration] = {}
        self._leaving: dict[Key, tuple[Pool, Backend]] = {}

    def listed(self, role: str | None) -> list[Worker]:
        """The workers of a role, or of all. The router of a model is none: its engines are its own."""
        return [worker for target in self._scope(role) if target.router_url is None for worker in self._of(target)]

    def find(self, role: str | None, name: str) -> Worker:
        """The worker with this id (its own, or the backend's) or URL.

        Raises:
            Refusal: There is none, or a URL is served by several pools.
        """
        url = _normalized(name)
        found = [each for each in self.listed(role) if name in (each.id, each.backend.id) or each.backend.url == url]
        if not found:
            raise Refusal("unknown_worker", f"no worker {name!r} here; GET /workers lists them", HTTPStatus.NOT_FOUND)
        if len(found) > 1:
            owners = ", ".join(worker.target.pool.name for worker in found)
            raise Refusal("ambiguous_worker", f"{name!r} is a worker of {owners}: name it by its id")
        return found[0]

    async def register(self, role: str | None, registration: Registration) -> Worker:
        """Make an engine a worker. The same again changes nothing.

        It gets requests once a probe has reached it; a manager has it ready, and with the published weights, by then.

        Raises:
            Refusal: The address, the capacity or the model is refused, or the manager says no.
        """
        target = self._target(role, registration.model_id)
        try:
            self._rules.check(registration.url)
            authority, url = normalize_address(registration.url)
            if self._is_own(authority):
                raise Refusal("invalid_address", f"{url} is refused: it is the address of this gateway itself")
            manager = self._manager_of(target)
            if manager is None:
                backend = self._admit(target.pool, url, registration.capacity)
            else:
                backend = await _add(manager, target, url, registration.capacity)
        except TrimtabError as error:
            raise Refusal(error.code, str(error), status_of_error(error)) from error
        key = _key(target, backend)
        self._registrations[key] = registration
        return next(worker for worker in self._of(target) if _key(target, worker.backend) == key)

    async def remove(self, worker: Worker) -> None:
        """Drain a worker; it is forgotten once nothing runs on it. It is listed until then.

        A manager that runs it waits for that, and stops it.

        Raises:
            Refusal: The manager says no.
        """
        manager = self._manager_of(worker.target)
        if manager is not None:
            # One that is no engine of the manager was added to the pool itself, and goes like any other.
            try:
                await manager.remove_engine(worker.backend.id, worker.target.role, worker.target.model)
            except UnknownBackend:
                pass
            except TrimtabError as error:
                raise Refusal(error.code, str(error), status_of_error(error)) from error
            else:
                return
        pool = worker.target.pool
        wanted = _key(worker.target, worker.backend)
        for backend in pool.backends():
            if _key(worker.target, backend) == wanted and not pool.retire_backend(backend):
                self._leaving[wanted] = (pool, backend)

    def tick(self) -> None:
        """Forget workers that have drained meanwhile."""
        for key, (pool, backend) in list(self._leaving.items()):
            if pool.retire_backend(backend):
                del self._leaving[key]

    def _manager_of(self, target: Target) -> FleetControl | None:
        manager = self._manager()
        return None if manager is None or manager.standing(target.role, target.model) is None else manager

    def _admit(self, pool: Pool, url: str, capacity: float | None) -> Backend:
        known = next((each for each in pool.statistics().backends if each.url == url), None)
        if known is None:
            return pool.add_backend(url, 1.0 if capacity is None else capacity, proven=False)
        kept = known.capacity if capacity is None else capacity
        if known.draining or known.health in _OVER:
            # What still runs on the old incarnation settles there.
            with suppress(UnknownBackend):
                pool.remove_backend(known.id)
        return pool.add_backend(url, kept, id=known.id, proven=False)

    def _of(self, target: Target) -> Iterable[Worker]:
        backends = target.pool.statistics().backends
        live = {_key(target, backend) for backend in backends}
        for key in [key for key in self._registrations if key[0] == target.pool.name and key not in live]:
            del self._registrations[key]
        for backend in backends:
            key = _key(target, backend)
            identity = str(uuid.uuid5(self._namespace, "/".join(map(str, key))))
            yield Worker(identity, target, backend, self._registrations.get(key))

    def _scope(self, role: str | None) -> list[Target]:
        return [target for target in self._targets if role in (None, target.role)]

    def _target(self, role: str | None, model: str | None) -> Target:
        scope = self._scope(role)
        known = ", ".join(target.pool.name for target in scope)
        if model is not None:
            named = [target for target in scope if model in (target.model, target.pool.name)]
            if not named and len(scope) == 1 and scope[0].is_lenient:
                named = scope
            if not named:
                raise Refusal("unknown_model", f"no model {model!r} here; known: {known}")
            scope = named
        if len(scope) > 1:
            message = f"several pools are served: say which one by model_id or by /<role>/workers; known: {known}"
            raise Refusal("model_required", message)
        (target,) = scope
        if target.router_url is not None:
            message = f"{target.pool.name} is served by the router {target.router_url}: register the engine there"
            raise Refusal("unsupported_worker", message)
        return target


async def _add(manager: FleetControl, target: Target, url: str, capacity: float | None) -> Backend:
    result = await manager.add_engine(url, target.role, target.model, capacity=capacity)
    wanted = {row.engine for row in result.engines}
    found = next((each for each in target.pool.backends() if each.id in wanted), None)
    if found is None:
        why = "; ".join(row.error for row in result.engines if row.error) or "it has left again"
        raise Refusal("not_registered", f"{url} did not come in: {why}", HTTPStatus.CONFLICT)
    return found


def _key(target: Target, backend: Backend | BackendStatistics) -> Key:
    return (target.pool.name, backend.id, backend.generation)


def _normalized(text: str) -> str | None:
    try:
        return normalize_address(text)[1]
    except TrimtabError:
        return None
