"""Engine groups: replicas that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab._core import Pool
from trimtab.errors import TrimtabError
from trimtab.spec.error import ConfigError
from trimtab.spec.flags import checked_server_args
from trimtab.spec.frozen import assign, frozen_strings
from trimtab.spec.rules import (
    MAX_COUNT,
    as_number,
    check_bool,
    check_choice,
    check_int,
    check_printable_name,
    normalized_url,
    without_user_info,
)

Launcher = Literal["local", "ray", "external"]
WorkerType = Literal["regular", "prefill", "decode"]
EngineKind = Literal["sglang", "sim"]


@dataclass(frozen=True)
class ParallelSpec:
    """How one engine is cut into pieces; each number is a count of parts.

    Attributes:
        tp: Tensor parallel size.
        pp: Pipeline parallel size.
        dp: Data parallel size.
        ep: Expert parallel size, within ``tp``.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for key in ("tp", "pp", "dp", "ep"):
            check_int(key, getattr(self, key), 1, MAX_COUNT)
        if self.tp % self.ep:
            raise ConfigError("ep", f"{self.ep} is refused: experts are spread over the tp = {self.tp} ranks, evenly")


@dataclass(frozen=True)
class EngineGroupSpec:
    """Replicas with one parallel layout, one set of server arguments and one launcher.

    Attributes:
        name: Unique in its model.
        replicas: How many engines; of an external group as many as it has ``urls``.
        gpus_per_engine: GPUs of one engine over all of its nodes; 0: it runs on CPUs.
        nodes_per_engine: Nodes that one engine spans, with as many of its GPUs on each; above 1 the first is its head.
        parallel: How one engine is cut into pieces.
        worker_type: ``regular``, or one half of a pair: ``prefill`` or ``decode``.
        capacity: Positive weight of each engine, load is compared as outstanding / capacity; None: what the engine says
            of its ``max_running_requests``.
        server_args: Flags of the server without their dashes; true is a bare flag, false leaves it out, a list repeats
            its values.
        launcher: ``local`` starts processes on this machine, ``ray`` actors in a cluster, ``external`` nothing: the
            engines run already.
        engine: ``sglang``, or ``sim``: the simulated engine.
        urls: Of an external group: where its engines are; more may be added while it runs.
        lifecycle: Of an external group: the manager may pause, update and sleep its engines.
        env_vars: Environment of the engines' processes, over that of the model.
    """

    name: str
    replicas: int = 1
    gpus_per_engine: int = 0
    nodes_per_engine: int = 1
    parallel: ParallelSpec = field(default_factory=ParallelSpec)
    worker_type: WorkerType = "regular"
    capacity: float | None = None
    server_args: Mapping[str, Any] = field(default_factory=dict)
    launcher: Launcher = "local"
    engine: EngineKind = "sglang"
    urls: tuple[str, ...] = ()
    lifecycle: bool = True
    env_vars: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_printable_name("engine group", self.name)
        check_int("replicas", self.replicas, 0 if self.launcher == "external" else 1, MAX_COUNT)
        check_int("gpus_per_engine", self.gpus_per_engine, 0, MAX_COUNT)
        check_int("nodes_per_engine", self.nodes_per_engine, 1, MAX_COUNT)
        if not isinstance(self.parallel, ParallelSpec):
            raise ConfigError("parallel", f"{self.parallel!r} is refused: it must be a table such as {{tp = 2}}")
        check_choice("worker_type", self.worker_type, ("regular", "prefill", "decode"))
        check_choice("launcher", self.launcher, ("local", "ray", "external"))
        check_choice("engine", self.engine, ("sglang", "sim"))
        check_bool("lifecycle", self.lifecycle)
        if self.capacity is not None:
            assign(self, capacity=_checked_capacity(self.capacity))
        assign(
            self,
            server_args=checked_server_args(self.server_args),
            env_vars=frozen_strings("env_vars", self.env_vars, '{NCCL_DEBUG = "WARN"}'),
            urls=_checked_urls(self.urls),
        )
        if self.launcher == "external":
            self._check_external()
        else:
            self._check_launched()

    def _check_external(self) -> None:
        if self.replicas not in (1, len(self.urls)):
            raise ConfigError(
                "replicas",
                f"{self.replicas} is refused: an external group has one for each of its {len(self.urls)} urls",
            )
        assign(self, replicas=len(self.urls))
        for key, launched in (
            ("server_args", bool(self.server_args)),
            ("env_vars", bool(self.env_vars)),
            ("gpus_per_engine", self.gpus_per_engine > 0),
            ("nodes_per_engine", self.nodes_per_engine > 1),
            ("parallel", self.parallel != ParallelSpec()),
        ):
            if launched:
                raise ConfigError(key, "is refused: an external group is not launched, so nobody would read it")

    def _check_launched(self) -> None:
        if self.urls:
            raise ConfigError(
                "urls", f'is refused: only a group with launcher = "external" has them, not {self.launcher!r}'
            )
        if not self.lifecycle:
            raise ConfigError(
                "lifecycle", f"false is refused: engines of the {self.launcher!r} launcher are the manager's to act on"
            )
        if self.gpus_per_engine:
            layout, expected = self._gpus_of_layout()
            if self.gpus_per_engine != expected:
                raise ConfigError(
                    "gpus_per_engine",
                    f"{self.gpus_per_engine} is refused: the parallel layout needs {layout} = {expected}",
                )

        if self.nodes_per_engine > 1 and self.gpus_per_engine % self.nodes_per_engine:
            raise ConfigError(
                "nodes_per_engine",
                f"{self.nodes_per_engine} is refused: gpus_per_engine = {self.gpus_per_engine} cannot be spread over "
                "as many nodes evenly",
            )

    def _gpus_of_layout(self) -> tuple[str, int]:
        parallel = self.parallel
        if self.server_args.get("enable-dp-attention"):
            # With data parallel attention the replicas of the attention share the ranks of tp.
            return f"tp * pp = {parallel.tp} * {parallel.pp}", parallel.tp * parallel.pp
        text = f"tp * pp * dp = {parallel.tp} * {parallel.pp} * {parallel.dp}"
        return text, parallel.tp * parallel.pp * parallel.dp


def _checked_capacity(value: object) -> float:
    capacity = as_number("capacity", value)
    try:
        # The pool is the one judge of capacities.
        Pool("config").add_backend("127.0.0.1:1", capacity, proven=False)
    except TrimtabError as error:
        raise ConfigError("capacity", str(error)) from None
    return capacity


def _checked_urls(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(url, str) for url in value):
        shown = without_user_info(repr(value))
        raise ConfigError("urls", f'{shown} is refused: it must be a list such as ["10.0.0.1:30000"]')
    urls: list[str] = []
    for index, text in enumerate(value):
        url = normalized_url(f"urls[{index}]", text)
        if url in urls:
            raise ConfigError(f"urls[{index}]", f"{url} is refused: urls[{urls.index(url)}] has the same address")
        urls.append(url)
    return tuple(urls)
