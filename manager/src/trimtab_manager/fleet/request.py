"""What an engine is started with: a function of its model and its group, and of nothing else.

No environment variable of the manager, no global argument of a trainer and no other model's flag has a way in here: a
teacher that inherited the actor's flags would serve with the actor's memory fraction, or ask for weights that it must
never get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.spec import engine_env, server_args
from trimtab_manager.launch.types import LaunchRequest

if TYPE_CHECKING:
    from trimtab.spec import EngineGroupSpec, InferenceModelSpec


def launch_request(
    model: InferenceModelSpec,
    group: EngineGroupSpec,
    *,
    engine_id: str,
    generation: int,
    url: str | None,
    deadline_s: float,
    api_key: str | None,
) -> LaunchRequest:
    """The request for one incarnation.

    Args:
        model: Its model.
        group: Its group.
        engine_id: The slot's id.
        generation: Number of the incarnation.
        url: Where it runs already; None: it is started.
        deadline_s: Seconds until it must be ready.
        api_key: The key that it asks for.
    """
    return LaunchRequest(
        engine_id=engine_id,
        generation=generation,
        url=url,
        engine=group.engine,
        model_path=model.model_path,
        served_model_name=model.name,
        server_args=server_args(model, group),
        env_vars=engine_env(model, group),
        nodes=group.nodes_per_engine,
        gpus=group.gpus_per_engine // group.nodes_per_engine,
        deadline_s=deadline_s,
        api_key=api_key,
    )
