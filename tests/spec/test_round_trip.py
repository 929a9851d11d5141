"""TOML, JSON and pickle: what goes through comes back equal."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spec.samples import group, model, role
from trimtab.spec import (
    ConfigError,
    EngineGroupSpec,
    FleetSpec,
    InferenceModelSpec,
    InferenceRoleSpec,
    ManagerSpec,
    ParallelSpec,
    RoutingSpec,
    fleet_from_table,
    load_fleet,
)
from trimtab.spec.tables import parse_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(categories=["L", "N", "P", "Zs"], max_codepoint=0x2FF), min_size=1, max_size=8).filter(
    str.isprintable
)
SECONDS = st.floats(0.001, 1e6, allow_nan=False) | st.integers(1, 10**6)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
FLAGS = st.from_regex(r"x[a-z0-9]{1,6}(-[a-z]{1,4})?", fullmatch=True)
ENV = st.dictionaries(TEXT, TEXT, max_size=2)
PARALLEL = st.builds(
    ParallelSpec, tp=st.sampled_from([2, 4]), pp=st.integers(1, 3), dp=st.integers(1, 3), ep=st.sampled_from([1, 2])
)


@st.composite
def groups(draw: st.DrawFn, name: str) -> EngineGroupSpec:
    """A group that is launched."""
    parallel = draw(PARALLEL)
    gpus = draw(st.sampled_from([0, parallel.tp * parallel.pp * parallel.dp]))
    return EngineGroupSpec(
        name=name,
        replicas=draw(st.integers(1, 9)),
        gpus_per_engine=gpus,
        nodes_per_engine=draw(st.sampled_from([1, 2] if gpus % 2 == 0 else [1])),
        parallel=parallel,
        capacity=draw(st.none() | st.floats(0.5, 100)),
        server_args=draw(st.dictionaries(FLAGS, SCALARS | st.lists(st.integers() | TEXT, max_size=3), max_size=3)),
        launcher=draw(st.sampled_from(["local", "ray"])),
        engine=draw(st.sampled_from(["sglang", "sim"])),
        env_vars=draw(ENV),
    )


@st.composite
def models(draw: st.DrawFn, name: str) -> InferenceModelSpec:
    """A model with one or two groups."""
    judge = draw(st.booleans())
    routed = draw(st.booleans())
    limit = draw(st.none() | st.integers(1, 99))
    return InferenceModelSpec(
        name=name,
        model_path=draw(TEXT.filter(bool)),
        engine_groups=tuple(map(draw, map(groups, draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))))),
        weight_source=draw(st.sampled_from(["static", "trainer", "dcs"])),
        route_mode="sglang_router" if routed else "direct",
        router_url="http://10.0.0.9:3000" if routed else None,
        adapter="genrm" if judge else None,
        sampling_defaults={"temperature": 0.2, "stop": ["\n", '"']} if judge else {},
        chat_template_kwargs=draw(st.dictionaries(TEXT, JSON, max_size=2)) if judge else {},
        env_vars=draw(ENV),
        session_ttl_s=draw(SECONDS),
        max_concurrent=limit,
        queue_size=None if limit is None else draw(st.none() | st.integers(0, 9)),
    )


@st.composite
def fleets(draw: st.DrawFn) -> FleetSpec:
    """A fleet of one or two roles."""
    roles = []
    for name in draw(st.lists(st.sampled_from(["rollout", "genrm", "teacher-1"]), min_size=1, max_size=2, unique=True)):
        names = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
        keys = draw(st.lists(st.sampled_from(["openai/gsm8k", 'a"b', "c d", "\x7f\t\\"]), max_size=2, unique=True))
        routing = RoutingSpec(
            default_model=draw(st.none() | st.sampled_from(names)),
            route_keys={key: names[0] for key in keys if key not in names},
            session_fields=draw(st.sampled_from([(), ("user",)])),
        )
        built = tuple(draw(models(each)) for each in names)
        roles.append(InferenceRoleSpec(role=name, models=built, routing=routing))
    manager = ManagerSpec(start_deadline_s=draw(SECONDS), python=draw(st.none() | TEXT.filter(bool)))
    return FleetSpec(tuple(roles), manager, draw(st.dictionaries(TEXT, JSON, max_size=2)))


@pytest.mark.slow
@given(fleets())
@settings(max_examples=60, deadline=None)
def test_a_fleet_comes_back_equal(fleet: FleetSpec) -> None:
    """Through each of them, with an equal hash; the plain tables are JSON data."""
    assert pickle.loads(pickle.dumps(fleet)) == fleet
    assert FleetSpec.from_json(fleet.to_json()) == fleet
    assert fleet_from_table(parse_toml(fleet.to_toml())) == fleet
    assert fleet_from_table(json.loads(json.dumps(fleet.to_table()))) == fleet
    assert hash(fleet_from_table(fleet.to_table())) == hash(fleet)


def test_another_process_reads_the_pickle() -> None:
    """As a Ray worker does, which has ``trimtab`` and neither gateway nor manager."""
    fleet = FleetSpec((role(model(adapter="genrm", sampling_defaults={"stop": ["a"]})),))
    script = (
        "import pickle, sys\n"
        "sys.modules['trimtab_gateway'] = sys.modules['trimtab_manager'] = None\n"
        "sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(fleet), capture_output=True, check=True)
    assert pickle.loads(done.stdout) == fleet


def test_toml_has_no_null() -> None:
    """JSON does. A field that is None is left out in both; inside a table it is named, not dropped."""
    fleet = FleetSpec((role(model(adapter="genrm", chat_template_kwargs={"a": [1, None]})),))
    assert FleetSpec.from_json(fleet.to_json()) == fleet
    with pytest.raises(ConfigError, match="TOML has no word for it") as caught:
        fleet.to_toml()
    assert caught.value.where == "roles.rollout.models.policy.chat_template_kwargs.a[1]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be a table"),
        ("[" * 100_000, "nested too deeply"),
        ('{"roles": {}, "roles": {}}', "roles: the key is given twice"),
        ('{"roles": {"r": {"route_keys": {"k": "a", "k": "b"}}}}', "k: the key is given twice"),
        ('{"roles": {"r": {"models": {"m": {"model_path": NaN, "engine_groups": []}}}}}', "nan is refused"),
    ],
)
def test_json_that_is_no_fleet(text: str, words: str) -> None:
    """A route key that is given twice would silently be the second one."""
    with pytest.raises(ConfigError) as caught:
        FleetSpec.from_json(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("urls", [(), ("10.0.0.1:30000", "[::1]:30000")])
def test_an_external_group_comes_back_equal(urls: tuple[str, ...]) -> None:
    """Also one that has no engines yet."""
    fleet = FleetSpec((role(model("m", group(launcher="external", urls=urls, lifecycle=False))),))
    assert fleet_from_table(parse_toml(fleet.to_toml())) == fleet
    assert FleetSpec.from_json(fleet.to_json()) == fleet


def test_defaults_come_from_one_place(tmp_path: Any) -> None:
    """A file that says nothing is the objects without arguments."""
    file = tmp_path / "trimtab.toml"
    file.write_text(
        '[roles.rollout.models.policy]\nmodel_path = "/models/m"\n'
        '[[roles.rollout.models.policy.engine_groups]]\nname = "g"\n'
    )
    assert load_fleet(file) == FleetSpec((role(),))
