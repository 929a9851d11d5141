"""Starting one process of an engine on this host: what a local launcher and the actor of a Ray node do alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trimtab_manager.launch.command import SIM_KEY_VARIABLE, Place, server_command, shown
from trimtab_manager.launch.environment import child_environment
from trimtab_manager.launch.keys import key_file, secrets_of
from trimtab_manager.launch.local.logs import LogFile, log_path
from trimtab_manager.launch.local.orphans import marks
from trimtab_manager.launch.local.ports import PortBlock
from trimtab_manager.launch.local.process import GuardedProcess
from trimtab_manager.launch.types import LaunchError, LaunchRequest


def start_process(
    request: LaunchRequest,
    place: Place,
    block: PortBlock,
    *,
    run_id: str,
    python: str,
    log_folder: Path,
    inherited: Mapping[str, str],
    gpus: Mapping[str, str],
    direct: tuple[str, ...],
) -> GuardedProcess:
    """Start it under a guard, with its log, its keys and the marks of its run.

    Args:
        request: The engine.
        place: Where the process runs.
        block: Its ports, which are handed over to it.
        run_id: The run that it belongs to.
        python: Interpreter that has SGLang.
        log_folder: Where its log goes.
        inherited: The environment that it is given, but for what the request and the launcher add.
        gpus: The part of that which binds its GPUs.
        direct: Hosts that it never reaches through a proxy.

    Raises:
        LaunchError: It cannot be started.
    """
    name = f"{request.engine_id}#{request.generation}"
    several = request.nodes > 1
    keys = key_file(request)
    command = server_command(request, place if keys is None else replace(place, key_file=keys.path), python=python)
    made = marks(run_id, name)
    extra = {**made, **gpus}
    if request.engine == "sim" and request.api_key is not None:
        extra[SIM_KEY_VARIABLE] = request.api_key
    path = log_path(log_folder, request.engine_id, request.generation, place.node if several else None)
    try:
        log = LogFile(path, secrets_of(request), shown(command))
        try:
            block.hand_over()
            return GuardedProcess(
                f"node {place.node}" if several else "main",
                command,
                environment=child_environment(inherited, request.env_vars, extra, direct=direct),
                marks=made,
                log=log,
                keys=keys,
            )
        finally:
            log.close()
    except OSError as error:
        raise LaunchError(f"{name}: cannot start {shown(command)}: {error}") from error
