"""The command of one engine process: which flags the launcher owns, and how any other one passes through.

Shared by every launcher that starts processes: what differs between them is the place (``Place``), not the flags.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_manager.launch.keys import flag_name, without_secrets
from trimtab_manager.launch.types import LaunchError, LaunchRequest

OWNED = frozenset({
    "model-path", "model", "served-model-name", "model-name", "host", "port", "nccl-port", "dist-init-addr",
    "nccl-init-addr", "nnodes", "node-rank", "base-gpu-id", "api-key",
})  # fmt: skip
"""Flags that follow from the request and its place; a request that sets one itself is refused."""

SIM_KEY_VARIABLE = "TRIMTAB_SIM_API_KEY"
"""Where the simulated engine reads its key, so that no command line shows it."""


@dataclass(frozen=True)
class Place:
    """Where one process of an engine runs and what it binds.

    Attributes:
        host: Address that the server binds.
        ports: A block that is its own: the server's, NCCL's, the rendezvous' and those derived from it.
        node: Rank of the node in a replica that spans several.
        rendezvous: Address of the head, without port, where the nodes meet; None for a replica of one node.
        rendezvous_port: Port of that; by default the third of the block.
        base_gpu: Index of its first GPU among those that it sees.
        key_file: A YAML file for SGLang that holds its keys.
    """

    host: str
    ports: range
    node: int = 0
    rendezvous: str | None = None
    rendezvous_port: int | None = None
    base_gpu: int = 0
    key_file: str | None = None

    @property
    def port(self) -> int:
        """Port of the server."""
        return self.ports[0]


def server_command(request: LaunchRequest, place: Place, *, python: str) -> tuple[str, ...]:
    """The command that becomes one process of an engine.

    Args:
        request: What is to run.
        place: Where.
        python: Interpreter that has SGLang; a simulated engine runs with the manager's own.

    Raises:
        LaunchError: The engine's kind is unknown, or the arguments set what the launcher owns.
    """
    arguments = without_secrets(request.server_args)
    if owned := sorted(OWNED & {flag_name(name) for name in request.server_args}):
        raise LaunchError(
            f"{request.engine_id}: server_args sets {', '.join(owned)}, which the launcher itself sets from the model, "
            f"the group and the placement; take it out of server_args"
        )
    if request.engine == "sglang":
        return _sglang(request, place, python, arguments)
    if request.engine == "sim":
        return _sim(request, place, arguments)
    raise LaunchError(f"{request.engine_id}: unknown kind of engine {request.engine!r}; there are sglang and sim")


def shown(command: tuple[str, ...]) -> str:
    """A command as one would type it. Keys are never part of one."""
    return shlex.join(command)


def _sglang(request: LaunchRequest, place: Place, python: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    if place.key_file is not None and "config" in arguments:
        raise LaunchError(
            f"{request.engine_id}: server_args sets config, and SGLang reads one file only, which the launcher needs "
            f"for the keys; put the file's values into server_args"
        )
    made = {
        "model-path": request.model_path,
        "served-model-name": request.served_model_name,
        "host": place.host,
        "port": place.port,
    }
    attention = bool(arguments.get("enable-dp-attention"))
    if attention or _data_parallel(arguments) == 1:
        # Each rank of plain data parallelism takes an NCCL port of its own; all would want this one.
        made["nccl-port"] = place.ports[1]
    if request.nodes > 1:
        made |= {"nnodes": request.nodes, "node-rank": place.node}
    if request.nodes > 1 or attention:
        # Also for one node: without it, ports are derived far outside the block.
        made["dist-init-addr"] = (
            f"{_bracketed(place.rendezvous or place.host)}:{place.rendezvous_port or place.ports[2]}"
        )
    if place.base_gpu:
        made["base-gpu-id"] = place.base_gpu
    if place.key_file is not None:
        made["config"] = place.key_file
    return (python, "-m", "sglang.launch_server", *_words({**made, **arguments}, repeat=False))


def _sim(request: LaunchRequest, place: Place, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    made = {
        "model-path": request.model_path,
        "model-name": request.served_model_name,
        "host": place.host,
        "port": place.port,
    }
    return (sys.executable, "-m", "trimtab_manager.sim.cli", *_words({**made, **arguments}, repeat=True))


def _data_parallel(arguments: Mapping[str, Any]) -> int:
    return int(next((arguments[name] for name in ("dp-size", "dp", "data-parallel-size") if name in arguments), 1))


def _words(arguments: Mapping[str, Any], *, repeat: bool) -> Iterator[str]:
    """Flags and values. A list is ``--flag a b`` for SGLang and ``--flag a --flag b`` (``repeat``) for the sim."""
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        flag = f"--{name}"
        if value is True:
            yield flag
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                if repeat or index == 0:
                    yield flag
                yield _text(item)
        else:
            yield flag
            yield _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(dict(value) if isinstance(value, Mapping) else value)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
