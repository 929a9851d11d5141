"""The environment of a node, seen through one of Ray's workers."""

from __future__ import annotations

import os

from trimtab_manager.launch.gpus import VARIABLE
from trimtab_manager.launch.local.orphans import environment_of

_OF_THE_WORKER = ("OMP_NUM_THREADS", VARIABLE)
"""Ray sets these for a worker by what it holds. Our actor holds nothing: one thread, and in some versions no GPU."""


def node_environment() -> dict[str, str]:
    """What an engine on this node inherits: this worker's environment, less what Ray made of it for the worker."""
    environment = dict(os.environ)
    raylet = environment_of(os.getppid())
    if raylet and environment.get("RAY_RAYLET_PID") == str(os.getppid()):
        for name in _OF_THE_WORKER:
            environment.pop(name, None)
            if name in raylet:
                environment[name] = raylet[name]
    return environment
