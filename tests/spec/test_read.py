"""Files of ``trimtab up``: what one becomes, and what each mistake in one is called."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from trimtab.spec import (
    ConfigError,
    EngineGroupSpec,
    FleetSpec,
    InferenceModelSpec,
    InferenceRoleSpec,
    ManagerSpec,
    ParallelSpec,
    RoutingSpec,
    load_fleet,
)

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[gateway]
port = 0

[manager]
stop_grace_s = 5

[roles.rollout]
deployment = "colocated_split"
default_model = "policy"
route_keys = { "openai/gsm8k" = "Qwen/Qwen3-0.6B" }

[roles.rollout.models.policy]
model_path = "/models/policy"
weight_source = "trainer"
elastic_enabled = true
max_concurrent = 512

[[roles.rollout.models.policy.engine_groups]]
name = "big"
replicas = 2
gpus_per_engine = 4
parallel = { tp = 4 }
server_args = { max_running_requests = 128 }

[[roles.rollout.models.policy.engine_groups]]
name = "outside"
launcher = "external"
urls = ["10.0.0.1:30000"]

[roles.rollout.models."Qwen/Qwen3-0.6B"]
model_path = "Qwen/Qwen3-0.6B"

[[roles.rollout.models."Qwen/Qwen3-0.6B".engine_groups]]
name = "g"
engine = "sim"
"""


def written(directory: Path, text: str) -> Path:
    """A configuration file with ``text``."""
    path = directory / "trimtab.toml"
    path.write_text(text)
    return path


def test_a_whole_file_becomes_one_fleet(tmp_path: Path) -> None:
    """Every table, quoted names, defaults for the rest."""
    big = EngineGroupSpec(
        "big",
        replicas=2,
        gpus_per_engine=4,
        parallel=ParallelSpec(tp=4),
        server_args={"max-running-requests": 128},
    )
    outside = EngineGroupSpec("outside", launcher="external", urls=("10.0.0.1:30000",))
    policy = InferenceModelSpec(
        "policy", "/models/policy", (big, outside), "trainer", elastic_enabled=True, max_concurrent=512
    )
    qwen = InferenceModelSpec("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", (EngineGroupSpec("g", engine="sim"),))
    routing = RoutingSpec(default_model="policy", route_keys={"openai/gsm8k": "Qwen/Qwen3-0.6B"})
    rollout = InferenceRoleSpec("rollout", (policy, qwen), deployment="colocated_split", routing=routing)
    expected = FleetSpec((rollout,), ManagerSpec(stop_grace_s=5), {"port": 0})
    assert load_fleet(written(tmp_path, WHOLE)) == expected


MODEL = "[roles.rollout.models.tiny]\nmodel_path = '/m'\n"
GROUP = f"{MODEL}[[roles.rollout.models.tiny.engine_groups]]\nname = 'g'\n"
AT = "roles.rollout.models.tiny"
MISTAKES = {
    "[manger]\nx = 1": "manger: unknown key; did you mean 'manager'?",
    "[manager]\nstart_deadlin_s = 1": "manager.start_deadlin_s: unknown key; did you mean 'start_deadline_s'?",
    "[manager]\nstart_deadline_s = 0": "manager.start_deadline_s: 0 is refused",
    "manager = 1": "manager: 1 is refused: it must be a table",
    "gateway = 1": "gateway: 1 is refused: it must be a table",
    "[roles.rollout]\nrout_keys = {}": "roles.rollout.rout_keys: unknown key; did you mean 'route_keys'?",
    "[roles.rollout]\nrouting = {}": "roles.rollout.routing: unknown key",
    "[roles.rollout]": "roles.rollout.models: the role has no model",
    "[roles.rollout]\nmodels = 1": "roles.rollout.models: 1 is refused: it must be a table",
    "[roles.generate]\nmodels = {}": 'roles.generate: role name "generate" is refused',
    f"{GROUP}[roles.rollout]\ndefault_model = 'tinny'": "roles.rollout.default_model: 'tinny' is not a model",
    MODEL: f"{AT}.engine_groups: is missing",
    "[roles.rollout.models.tiny]\nengine_groups = []": f"{AT}.model_path: is missing",
    f"{MODEL}engine_groups = []": f"{AT}.engine_groups: the model has no engine group",
    f"{MODEL}engine_groups = {{}}": f"{AT}.engine_groups: {{}} is refused: it must be a list of tables",
    f"{MODEL}engine_groups = [1]": f"{AT}.engine_groups[0]: 1 is refused: it must be a table",
    f"{MODEL}engines = ['h:1']": f"{AT}.engines: is refused: it belongs to `trimtab serve`",
    f"{MODEL}weight_sauce = 'x'": f"{AT}.weight_sauce: unknown key; did you mean 'weight_source'?",
    f"{MODEL}[[roles.rollout.models.tiny.engine_groups]]\nreplicas = 1": f"{AT}.engine_groups[0].name: is missing",
    f"{GROUP}replica = 2": f"{AT}.engine_groups[0].replica: unknown key; did you mean 'replicas'?",
    f"{GROUP}replicas = true": f"{AT}.engine_groups[0].replicas: True is refused: it must be a whole number",
    f"{GROUP}parallel = 2": f"{AT}.engine_groups[0].parallel: 2 is refused: it must be a table",
    f"{GROUP}parallel = {{ tensor = 2 }}": f"{AT}.engine_groups[0].parallel.tensor: unknown key; known keys: dp, ep",
    f"{GROUP}parallel = {{ tp = 0 }}": f"{AT}.engine_groups[0].parallel.tp: 0 is refused",
    f"{GROUP}server_args = {{ port = 1 }}": f"{AT}.engine_groups[0].server_args.port: is refused: the launcher gives",
    f"{GROUP}server_args = {{ x = 1979-05-27 }}": f"{AT}.engine_groups[0].server_args: x: datetime.date(1979, 5, 27)",
    f"{GROUP}[roles.rollout.models.tiny.env_vars]\nA = 1": f"{AT}.env_vars.A: 1 is refused: it must be a string",
    f"{GROUP}launcher = 'external'": f"{AT}.engine_groups[0].urls: is missing: it must be a list",
    f"{GROUP}launcher = 'external'\nurls = []\nreplicas = 2": f"{AT}.engine_groups[0].replicas: 2 is refused",
    "": "roles: nothing to serve",
    "[roles": "is not valid TOML: ",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """File, key path, value, rule; an unknown key also gets its nearest match."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_fleet(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_reading_needs_neither_gateway_nor_manager(tmp_path: Path) -> None:
    """Whoever installed ``trimtab`` alone can read a file; nothing heavy is imported for it."""
    script = (
        "import sys\n"
        "sys.modules['trimtab_gateway'] = sys.modules['trimtab_manager'] = None\n"
        "from trimtab.spec import load_fleet\n"
        f"print(len(load_fleet({str(written(tmp_path, WHOLE))!r}).roles))\n"
        "print([name for name in ('aiohttp', 'rich', 'orjson', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["1", "[]"]
