"""The configuration objects: gateway, role, model, engine. Frozen, and valid once built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trimtab._core import AddressRules, Pool
from trimtab.errors import TrimtabError
from trimtab_gateway.config.adapters import checked_adapter
from trimtab_gateway.config.error import ConfigError, toml_key
from trimtab_gateway.config.keys import KEYS, check_key
from trimtab_gateway.config.routes import check_route_keys, check_router_url, check_session_fields
from trimtab_gateway.config.rules import (
    as_number,
    check_bool,
    check_choice,
    check_host,
    check_int,
    check_model_name,
    check_path,
    check_role_name,
    check_seconds,
    check_socket_path,
    without_user_info,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_PORT = 8080
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class EngineConfig:
    """One SGLang engine that is running already.

    Attributes:
        url: ``[http[s]://]host:port``. After construction: the normalised ``http[s]://host:port``.
        capacity: Positive weight; load is compared as outstanding / capacity.
        id: Name in headers, logs and metrics. Default: ``host:port``.
    """

    url: str
    capacity: float = 1.0
    id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ConfigError(
                "url",
                f"{without_user_info(repr(self.url))} is refused: it must be a string like 'http://10.0.0.1:30000'",
            )
        if self.id is not None and not isinstance(self.id, str):
            raise ConfigError("id", f"{self.id!r} is refused: it must be a string")
        capacity = as_number("capacity", self.capacity)
        try:
            # The pool is the one judge of addresses, capacities and ids: a pool of its own says now what the
            # gateway's pool would say later.
            backend = Pool("config").add_backend(self.url, capacity, id=self.id, proven=False)
        except TrimtabError as error:
            key = {"invalid_address": "url", "invalid_capacity": "capacity"}.get(error.code, "id")
            raise ConfigError(key, str(error)) from None
        object.__setattr__(self, "url", backend.url)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "id", backend.id)

    @property
    def backend_id(self) -> str:
        """The id that the backend gets, explicit or not."""
        assert self.id is not None, "filled in by __post_init__"  # noqa: S101 -- narrows the type of a filled field
        return self.id


@dataclass(frozen=True)
class ModelConfig:
    """One served model: a pool of engines that all hold it.

    Attributes:
        name: The name clients send as ``model``.
        engines: The engines of the pool; more may be registered while the gateway runs.
        router_url: A router that is asked instead of engines; the model has no engines then.
        session_ttl_s: An idle session without an open lease is forgotten after this many seconds.
        session_cap: Most sessions remembered at a time.
        max_concurrent: Most executions outstanding in the pool; None: no limit.
        queue_size: Most requests that wait for a place while so many run; None: 100,000.
        queue_timeout_s: How long a request that says nothing of its patience waits for a place; None: not at all.
        versioned: Grant nothing before a controller has published a first weight version.
        on_ambiguous: What an execution with an unknown end means: ``settle`` counts it, ``resolve`` finds
            out when its engine no longer has it, ``fail_pool`` fails the pool.
        on_drain_timeout: What a drain past its deadline means: ``fail`` fails the pool, ``report`` only tells.
        sender_ttl_s: A sender that is silent for this many seconds is lost.
        min_ready_engines: ``/ready`` asks for this many eligible engines; 0: the model is not required.
        recovery: What becomes of leases that senders present after a restart of the gateway: ``adopt`` takes over those
            that still fit, ``restart`` makes each ambiguous.
        unhealthy_budget_s: How long an engine may be unhealthy in a row, pauses not counted; None: for ever.
        on_unhealthy: What happens then: ``exclude`` takes the engine out, ``fail_pool`` fails the pool.
        adapter: ``genrm``: ``/generate`` takes messages, and answers ``{"response": text}``.
        sampling_defaults: Of the adapter, under the request's own ``sampling_params``.
        chat_template_kwargs: Of the adapter, for the chat template.
    """

    name: str
    engines: tuple[EngineConfig, ...] = ()
    session_ttl_s: float = 3600.0
    session_cap: int = 1_000_000
    max_concurrent: int | None = None
    queue_size: int | None = None
    queue_timeout_s: float | None = None
    versioned: bool = False
    on_ambiguous: Literal["settle", "resolve", "fail_pool"] = "settle"
    on_drain_timeout: Literal["fail", "report"] = "fail"
    sender_ttl_s: float = 120.0
    adapter: Literal["genrm"] | None = None
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    router_url: str | None = None
    min_ready_engines: int = 1
    recovery: Literal["adopt", "restart"] = "adopt"
    unhealthy_budget_s: float | None = None
    on_unhealthy: Literal["exclude", "fail_pool"] = "exclude"

    def __post_init__(self) -> None:
        check_model_name(self.name)
        defaults, kwargs = checked_adapter(self.adapter, self.sampling_defaults, self.chat_template_kwargs)
        object.__setattr__(self, "sampling_defaults", defaults)
        object.__setattr__(self, "chat_template_kwargs", kwargs)
        object.__setattr__(self, "engines", tuple(self.engines))
        if self.router_url is not None:
            object.__setattr__(self, "router_url", check_router_url(self.router_url))
            if self.engines:
                raise ConfigError("router_url", "is refused: the model has engines; it has the one or the other")
        check_seconds("session_ttl_s", self.session_ttl_s)
        check_int("session_cap", self.session_cap, 1, 2**32 - 1)
        if self.max_concurrent is not None:
            check_int("max_concurrent", self.max_concurrent, 1, 2**32 - 1)
        self._check_queue()
        check_bool("versioned", self.versioned)
        check_choice("on_ambiguous", self.on_ambiguous, ("settle", "resolve", "fail_pool"))
        check_choice("on_drain_timeout", self.on_drain_timeout, ("fail", "report"))
        check_seconds("sender_ttl_s", self.sender_ttl_s)
        check_int("min_ready_engines", self.min_ready_engines, 0, 2**32 - 1)
        check_choice("recovery", self.recovery, ("adopt", "restart"))
        if self.unhealthy_budget_s is not None:
            check_seconds("unhealthy_budget_s", self.unhealthy_budget_s)
        check_choice("on_unhealthy", self.on_unhealthy, ("exclude", "fail_pool"))
        if self.on_unhealthy == "fail_pool" and self.unhealthy_budget_s is None:
            raise ConfigError(
                "on_unhealthy", "'fail_pool' is refused: it says what follows unhealthy_budget_s; set that"
            )
        seen: dict[str, int] = {}
        for index, engine in enumerate(self.engines):
            if (first := seen.setdefault(engine.url, index)) != index:
                raise ConfigError(
                    f"engines[{index}].url", f"{engine.url} is refused: engines[{first}] has the same address"
                )

    def _check_queue(self) -> None:
        if self.queue_size is not None:
            check_int("queue_size", self.queue_size, 0, 2**32 - 1)
        if self.queue_timeout_s is not None:
            check_seconds("queue_timeout_s", self.queue_timeout_s)
        for key in ("queue_size", "queue_timeout_s"):
            if getattr(self, key) is not None and self.max_concurrent is None:
                raise ConfigError(key, "is refused: nothing is queued for without max_concurrent")


@dataclass(frozen=True)
class RoleConfig:
    """What a group of models is for; the first segment of the URL.

    Attributes:
        name: The path segment.
        models: The models, each with its own pool.
        default_model: Serves requests that name no model; a sole model is the default anyway.
        lenient_model: Accept any model name (only for a role with one model).
        route_keys: Model by route key, for requests that name no model.
        session_fields: Members of a body that may name the session when no header does.
        expose_engine_urls: Whether discovery says where engines are.
    """

    name: str
    models: tuple[ModelConfig, ...]
    default_model: str | None = None
    lenient_model: bool = False
    route_keys: Mapping[str, str] = field(default_factory=dict)
    session_fields: tuple[str, ...] = ()
    expose_engine_urls: bool = True

    def __post_init__(self) -> None:
        check_role_name(self.name)
        object.__setattr__(self, "models", tuple(self.models))
        names = [model.name for model in self.models]
        if not names:
            raise ConfigError("models", "the role has no model; give it at least one")
        _refuse_duplicates("models", "model", names)
        if self.default_model is not None and self.default_model not in names:
            raise ConfigError(
                "default_model", f"{self.default_model!r} is not a model of this role, which has {_listed(names)}"
            )
        check_bool("lenient_model", self.lenient_model)
        check_bool("expose_engine_urls", self.expose_engine_urls)
        if self.lenient_model and len(names) > 1:
            raise ConfigError(
                "lenient_model",
                f"true is refused: it ignores the name a client sends, and this role has {_listed(names)}",
            )
        object.__setattr__(self, "route_keys", check_route_keys(self.route_keys, names))
        object.__setattr__(self, "session_fields", check_session_fields(self.session_fields))
        owners: dict[str, str] = {}
        for model in self.models:
            for index, engine in enumerate(model.engines):
                place = f"models.{toml_key(model.name)}.engines[{index}]"
                first = owners.setdefault(engine.backend_id, place)
                if first != place:
                    raise ConfigError(f"{place}.id", f"{engine.backend_id!r} is refused: {first} has the same id")

    @property
    def router_urls(self) -> dict[str, str]:
        """The router of each model that is reached through one."""
        return {model.name: model.router_url for model in self.models if model.router_url is not None}

    @property
    def effective_default_model(self) -> str | None:
        """The model that serves a request naming none, or None when the request must name one."""
        return self.models[0].name if len(self.models) == 1 else self.default_model


_SAME_HOST = ({"127.0.0.1", "localhost"}, {"0.0.0.0", "::", "127.0.0.1", "localhost", "::1"})  # noqa: S104 -- compared
"""Hosts that reach a listener on any of them."""


@dataclass(frozen=True)
class GatewayConfig:
    """A whole gateway: where it listens, its limits and timeouts, and what it serves.

    A timeout of None waits for ever; without ``admin_key`` the lease API is open to this machine. See
    ``docs/configuration.md`` for each knob's reason.

    Attributes:
        roles: What is served; names are unique.
        host: IP address or ``localhost`` to listen on.
        port: Port to listen on; 0 takes a free one.
        client_key: Key of whoever generates or looks round; without it that is everybody who can connect.
        admin_key: Bearer key of the lease API; without it the API is open to this machine only.
        engine_key: Sent to engines as bearer key where the client sent none, and with probes.
        metrics_need_key: Whether ``/metrics`` asks for the client key as well.
        tls_cert: PEM file with the listener's certificate chain; the listener speaks TLS then.
        tls_key: PEM file with its private key.
        engine_ca: PEM file with what certificates of ``https://`` engines are checked against; None: the system's.
        lease_socket: Path of a Unix socket on which the lease API is served, too.
        traces: Whether spans of traced requests are exported with OpenTelemetry.
        worker_threads: Threads of the data plane.
        max_body_bytes: Largest request body; a larger one is answered 413.
        connect_timeout_s: To connect to an engine.
        first_byte_timeout_s: From the request to the engine's answer head.
        idle_timeout_s: Longest silence inside an answer.
        total_timeout_s: A whole request.
        engine_keepalive_s: Idle engine connections older than this are not reused.
        abort_grace_s: For an engine to confirm an abort.
        probe_interval_s: Between two liveness probes of an engine.
        probe_timeout_s: After which a probe has failed.
        worker_allow: The only engines that may be registered over the network: networks, addresses, host names,
            ``*.domain``. Empty: all but link-local addresses and metadata services.
    """

    roles: tuple[RoleConfig, ...]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    client_key: str | None = field(default=None, repr=False)
    admin_key: str | None = field(default=None, repr=False)
    engine_key: str | None = field(default=None, repr=False)
    metrics_need_key: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    engine_ca: str | None = None
    lease_socket: str | None = None
    traces: bool = False
    worker_threads: int = 2
    max_body_bytes: int = 512 * _MEBIBYTE
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float | None = None
    idle_timeout_s: float | None = None
    total_timeout_s: float | None = None
    engine_keepalive_s: float = 4.0
    abort_grace_s: float = 2.0
    probe_interval_s: float = 1.0
    probe_timeout_s: float = 5.0
    worker_allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", tuple(self.roles))
        for key in KEYS:
            if getattr(self, key) is not None:
                check_key(key, getattr(self, key))
        check_bool("metrics_need_key", self.metrics_need_key)
        check_bool("traces", self.traces)
        if self.metrics_need_key and self.client_key is None:
            raise ConfigError("metrics_need_key", "true is refused: the key would be client_key, and there is none")
        self._check_tls()
        check_host(self.host, has_admin_key=self.admin_key is not None)
        check_int("port", self.port, 0, 65535)
        if self.lease_socket is not None:
            check_socket_path("lease_socket", self.lease_socket)
        check_int("worker_threads", self.worker_threads, 1, 1024)
        check_int("max_body_bytes", self.max_body_bytes, 1, 2**40)
        durations = ("connect_timeout_s", "engine_keepalive_s", "abort_grace_s", "probe_interval_s", "probe_timeout_s")
        for key in durations:
            check_seconds(key, getattr(self, key))
        for key in ("first_byte_timeout_s", "idle_timeout_s", "total_timeout_s"):
            if getattr(self, key) is not None:
                check_seconds(key, getattr(self, key))
        if not self.roles:
            raise ConfigError("roles", "nothing to serve; give at least one role")
        _refuse_duplicates("roles", "role", [role.name for role in self.roles])
        object.__setattr__(self, "worker_allow", _checked_allow_list(self.worker_allow))
        self._refuse_own_address()

    def _check_tls(self) -> None:
        for key in ("tls_cert", "tls_key", "engine_ca"):
            if getattr(self, key) is not None:
                check_path(key, getattr(self, key))
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise ConfigError(missing, "is missing: a listener with TLS needs both tls_cert and tls_key")

    def _refuse_own_address(self) -> None:
        # A gateway in front of itself finds itself alive and passes the first request round until it has no sockets.
        own = own_authorities(self.host, self.port)
        for role in self.roles:
            for model in role.models:
                if self.port and model.router_url and model.router_url.partition("://")[2] in own:
                    place = f"roles.{role.name}.models.{toml_key(model.name)}.router_url"
                    raise ConfigError(place, f"{model.router_url} is refused: it is the address of this gateway itself")
                for index, engine in enumerate(model.engines):
                    if self.port and engine.url.partition("://")[2] in own:
                        place = f"roles.{role.name}.models.{toml_key(model.name)}.engines[{index}].url"
                        raise ConfigError(place, f"{engine.url} is refused: it is the address of this gateway itself")


def own_authorities(host: str, port: int) -> set[str]:
    """``host:port`` of a listener on ``host`` for whoever is on the same machine, as far as it can be told."""
    hosts = {host} | next((names for names in _SAME_HOST if host in names), set())
    return {f"{f'[{host}]' if ':' in host else host}:{port}" for host in hosts}


def _checked_allow_list(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise ConfigError("worker_allow", f'{value!r} is refused: it must be a list such as ["10.0.0.0/8"]')
    try:
        AddressRules(value)
    except TrimtabError as error:
        raise ConfigError("worker_allow", str(error)) from None
    return tuple(value)


def _refuse_duplicates(where: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(where, f"{what} {name!r} is given twice")
        seen.add(name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
