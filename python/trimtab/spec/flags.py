"""Server arguments: which flags a group may give, and what a launched server is given.

A flag has one owner. What the launcher decides (addresses, ports, the model, its name, keys) and what the group says in
a key of its own (the parallel layout) is refused among ``server_args``: the second value would win silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.frozen import FrozenMapping, frozen_table, thaw

if TYPE_CHECKING:
    from trimtab.spec.group import EngineGroupSpec
    from trimtab.spec.model import InferenceModelSpec

_ADDRESS = "the launcher gives every engine an address of its own"
_MODEL = "it follows from the model: write model_path, and the name as the table's"
_KEY = "keys stand in no configuration: name a file with the key as engine_key_file in [gateway]"
_NODES = "the launcher decides which nodes an engine spans"
_WORKER = "write worker_type"
OWNED: Mapping[str, str] = {
    "host": _ADDRESS,
    "port": _ADDRESS,
    "nccl-port": _ADDRESS,
    "dist-init-addr": _ADDRESS,
    "nccl-init-addr": _ADDRESS,
    "model-path": _MODEL,
    "model": _MODEL,
    "model-name": _MODEL,
    "served-model-name": _MODEL,
    "api-key": _KEY,
    "admin-api-key": _KEY,
    "nnodes": _NODES,
    "node-rank": _NODES,
    "base-gpu-id": "the launcher decides which GPUs an engine gets",
    "weight-version": "the manager says which weights an engine has",
    "disaggregation-mode": _WORKER,
    "config": "a file could set what others own; write its values here",
    "tp-size": "write parallel.tp",
    "tensor-parallel-size": "write parallel.tp",
    "tp": "write parallel.tp",
    "pp-size": "write parallel.pp",
    "pipeline-parallel-size": "write parallel.pp",
    "pp": "write parallel.pp",
    "dp-size": "write parallel.dp",
    "data-parallel-size": "write parallel.dp",
    "dp": "write parallel.dp",
    "ep-size": "write parallel.ep",
    "expert-parallel-size": "write parallel.ep",
    "ep": "write parallel.ep",
}
"""Flags that a group may not give, and who gives them."""


def checked_server_args(value: object) -> FrozenMapping[Any]:
    """A frozen copy with every flag in its spelling with dashes. Raises :class:`ConfigError`."""
    table = frozen_table("server_args", value, '{"max-running-requests" = 64}')
    flags: dict[str, Any] = {}
    for name, entry in table.items():
        where = f"server_args.{toml_key(name)}"
        flag = name.replace("_", "-")
        if not flag or flag.startswith("-") or not flag.isascii() or not flag.replace("-", "").isalnum():
            raise ConfigError(where, "is refused: it must be a flag without its dashes, as in 'max-running-requests'")
        if flag in OWNED:
            raise ConfigError(where, f"is refused: {OWNED[flag]}")
        if flag in flags:
            raise ConfigError(where, f"is refused: {flag!r} is given twice")
        if entry is None or isinstance(entry, Mapping):
            raise ConfigError(
                where, f"{thaw(entry)!r} is refused: it must be a string, a number, true, false, or a list"
            )
        if isinstance(entry, tuple) and any(part is None or isinstance(part, bool | tuple | Mapping) for part in entry):
            raise ConfigError(where, f"{thaw(entry)!r} is refused: it must be a list of strings and numbers")
        flags[flag] = entry
    return FrozenMapping(flags)


def server_args(model: InferenceModelSpec, group: EngineGroupSpec) -> FrozenMapping[Any]:
    """The flags of every engine of a group, beyond those of the launcher.

    They follow from the two specs and from nothing else: neither the environment nor another model's settings reach a
    server. Whatever stands in ``server_args`` goes through untouched.
    """
    flags: dict[str, Any] = {}
    if group.engine == "sglang":
        parallel = group.parallel
        sizes = {"tp-size": parallel.tp, "pp-size": parallel.pp, "dp-size": parallel.dp, "ep-size": parallel.ep}
        flags.update({flag: size for flag, size in sizes.items() if size > 1})
        if group.worker_type != "regular":
            flags["disaggregation-mode"] = group.worker_type
    return FrozenMapping({**flags, **group.server_args})


def engine_env(model: InferenceModelSpec, group: EngineGroupSpec) -> FrozenMapping[str]:
    """The environment of every engine of a group, beyond that of the launcher: the group's over the model's."""
    return FrozenMapping({**model.env_vars, **group.env_vars})
