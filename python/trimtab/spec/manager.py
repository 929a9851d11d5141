"""Every deadline and limit of the manager."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.spec.error import ConfigError
from trimtab.spec.rules import MAX_COUNT, check_int, check_ip, check_seconds, check_string

_DURATIONS = (
    "start_deadline_s",
    "progress_interval_s",
    "stop_grace_s",
    "control_timeout_s",
    "exclusive_deadline_s",
    "drain_deadline_s",
    "idle_deadline_s",
    "pause_deadline_s",
    "resume_deadline_s",
    "flush_deadline_s",
    "release_deadline_s",
    "wake_deadline_s",
    "transfer_deadline_s",
    "read_back_deadline_s",
    "verify_deadline_s",
    "health_interval_s",
    "health_timeout_s",
    "restart_backoff_s",
)
_LOWEST_PORT = 1024


@dataclass(frozen=True, kw_only=True)
class ManagerSpec:
    """How long the manager waits for what, when it gives up, and where it puts things. Every wait has an end.

    Attributes:
        start_deadline_s: From the start of an engine's processes until it must serve.
        progress_interval_s: Between two lines that say how far a start is.
        stop_grace_s: Between SIGTERM and SIGKILL.
        control_timeout_s: For one control call that has no deadline of its own here.
        exclusive_deadline_s: For another change of a model's engines, such as a recovery, to end.
        drain_deadline_s: From the fence until the last request in the pool has ended.
        idle_deadline_s: For a drained engine to say twice that nothing runs on it.
        pause_deadline_s: For an engine to confirm a pause.
        resume_deadline_s: For an engine to confirm the end of one.
        flush_deadline_s: For an engine to empty its KV cache, repeated tries included.
        release_deadline_s: For an engine to give its memory back.
        wake_deadline_s: For an engine to take its memory back.
        transfer_deadline_s: For all engines of a model to have new weights.
        read_back_deadline_s: For all engines of a model to say which version they have.
        verify_deadline_s: For an engine to answer a short prompt with new weights.
        health_interval_s: Between two health checks of an engine.
        health_timeout_s: After which one has failed.
        health_failures: So many in a row mean that the engine is dead.
        restart_backoff_s: Before the second try to replace a dead engine; twice as long before each further one.
        restart_limit: So many failed tries in a row to replace an engine are the last.
        python: The interpreter that has SGLang; None: the one that runs the manager.
        log_dir: Directory of the engines' logs; None: one of its own below the system's temporary directory.
        bind_host: The IP address to which engines bind; None: 127.0.0.1 for the local launcher, every address of its
            node for Ray's.
        advertise_host: How others reach engines of the local launcher; None: by the address to which they bind, or the
            one that leads to the router when they bind every address.
        first_port: First port of the range from which engines get theirs.
        last_port: Last port of it; those that the kernel gives to connections are left out.
        ray_address: The cluster of the Ray launcher; None: the one of the environment, or the running one.
    """

    start_deadline_s: float = 1800.0
    progress_interval_s: float = 30.0
    stop_grace_s: float = 20.0
    control_timeout_s: float = 30.0
    exclusive_deadline_s: float = 60.0
    drain_deadline_s: float = 600.0
    idle_deadline_s: float = 10.0
    pause_deadline_s: float = 15.0
    resume_deadline_s: float = 15.0
    flush_deadline_s: float = 60.0
    release_deadline_s: float = 120.0
    wake_deadline_s: float = 120.0
    transfer_deadline_s: float = 600.0
    read_back_deadline_s: float = 30.0
    verify_deadline_s: float = 30.0
    health_interval_s: float = 5.0
    health_timeout_s: float = 20.0
    health_failures: int = 3
    restart_backoff_s: float = 5.0
    restart_limit: int = 5
    python: str | None = None
    log_dir: str | None = None
    bind_host: str | None = None
    advertise_host: str | None = None
    first_port: int = 20_000
    last_port: int = 65_535
    ray_address: str | None = None

    def __post_init__(self) -> None:
        for key in _DURATIONS:
            check_seconds(key, getattr(self, key))
        for key in ("health_failures", "restart_limit"):
            check_int(key, getattr(self, key), 1, MAX_COUNT)
        for key in ("python", "log_dir", "advertise_host", "ray_address"):
            if getattr(self, key) is not None:
                check_string(key, getattr(self, key))
        if self.bind_host is not None:
            check_ip("bind_host", self.bind_host)
        for key in ("first_port", "last_port"):
            check_int(key, getattr(self, key), _LOWEST_PORT, 65535)
        if self.advertise_host in ("0.0.0.0", "::"):  # noqa: S104 -- compared
            raise ConfigError(
                "advertise_host",
                f"{self.advertise_host!r} is refused: to whoever dials it, it is that machine itself",
            )
        if self.last_port < self.first_port:
            raise ConfigError("last_port", f"{self.last_port} is refused: it is before first_port = {self.first_port}")
