"""The configuration objects: gateway, role, model, engine. Frozen, and valid once built."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab._core import AddressRules, Pool
from trimtab.errors import TrimtabError
from trimtab.spec import AdapterSpec, ConfigError, PoolSpec, RoutingSpec, toml_key
from trimtab.spec.frozen import assign
from trimtab.spec.rules import (
    as_number,
    check_bool,
    check_int,
    check_model_name,
    check_path,
    check_role_name,
    check_seconds,
    normalized_url,
    refuse_duplicates,
    without_user_info,
)
from trimtab_gateway.config.keys import KEYS, check_key
from trimtab_gateway.config.rules import check_host, check_socket_path

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
class ModelConfig(PoolSpec, AdapterSpec):
    """One served model: a pool of engines that all hold it.

    Attributes:
        name: The name clients send as ``model``.
        engines: The engines of the pool; more may be registered while the gateway runs.
        router_url: A router that is asked instead of engines; the model has no engines then.
    """

    name: str
    engines: tuple[EngineConfig, ...] = ()
    router_url: str | None = None

    def __post_init__(self) -> None:
        check_model_name(self.name)
        AdapterSpec.__post_init__(self)
        assign(self, engines=tuple(self.engines))
        if self.router_url is not None:
            assign(self, router_url=normalized_url("router_url", self.router_url))
            if self.engines:
                raise ConfigError("router_url", "is refused: the model has engines; it has the one or the other")
        PoolSpec.__post_init__(self)
        seen: dict[str, int] = {}
        for index, engine in enumerate(self.engines):
            if (first := seen.setdefault(engine.url, index)) != index:
                raise ConfigError(
                    f"engines[{index}].url", f"{engine.url} is refused: engines[{first}] has the same address"
                )


@dataclass(frozen=True)
class RoleConfig(RoutingSpec):
    """What a group of models is for; the first segment of the URL.

    Attributes:
        name: The path segment.
        models: The models, each with its own pool.
        expose_engine_urls: Whether discovery says where engines are.
    """

    name: str
    models: tuple[ModelConfig, ...]
    expose_engine_urls: bool = True

    def __post_init__(self) -> None:
        check_role_name(self.name)
        assign(self, models=tuple(self.models))
        names = [model.name for model in self.models]
        if not names:
            raise ConfigError("models", "the role has no model; give it at least one")
        refuse_duplicates("models", "model", names)
        RoutingSpec.__post_init__(self)
        self.check_models(names)
        check_bool("expose_engine_urls", self.expose_engine_urls)
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
        refuse_duplicates("roles", "role", [role.name for role in self.roles])
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
