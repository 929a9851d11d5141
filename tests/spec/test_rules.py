"""One message per rule: which knob, which value, what it must be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.spec.samples import group, model, role
from trimtab.spec import (
    ConfigError,
    EngineGroupSpec,
    FleetSpec,
    InferenceModelSpec,
    InferenceRoleSpec,
    ManagerSpec,
    ModelPlacement,
    ParallelSpec,
    RoutingSpec,
)


def refused(build: Any, *args: Any, **kwargs: Any) -> ConfigError:
    """The error of a value that breaks a rule."""
    with pytest.raises(ConfigError) as caught:
        build(*args, **kwargs)
    return caught.value


EXTERNAL: dict[str, Any] = {"launcher": "external", "urls": ("10.0.0.1:30000", "10.0.0.2:30000")}


@pytest.mark.parametrize("count", [True, False, 1.0, "1", None, 0, -1, 2**40])
def test_a_count_is_a_positive_whole_number(count: Any) -> None:
    """A bool is not a number, and no number of engines or parts is zero."""
    assert refused(EngineGroupSpec, "g", replicas=count).where == "replicas"
    for part in ("tp", "pp", "dp", "ep"):
        assert refused(ParallelSpec, **{part: count}).where == part
    for key in ("health_failures", "restart_limit"):
        assert refused(ManagerSpec, **{key: count}).where == key


@pytest.mark.parametrize("count", [True, -1, 0.5, "2"])
def test_gpus_are_counted_from_zero(count: Any) -> None:
    """Zero is an engine on CPUs."""
    assert refused(EngineGroupSpec, "g", gpus_per_engine=count).where == "gpus_per_engine"
    assert group(gpus_per_engine=0).gpus_per_engine == 0


@pytest.mark.parametrize(
    ("knobs", "where", "words"),
    [
        ({"name": ""}, "", "engine group name '' is refused"),
        ({"name": 3}, "", "engine group name 3 is refused"),
        ({"name": "a\nb"}, "", "do not print"),
        ({"capacity": 0}, "capacity", "0"),
        ({"capacity": math.nan}, "capacity", "NaN"),
        ({"capacity": "4"}, "capacity", "'4' is refused: it must be a number"),
        ({"capacity": True}, "capacity", "must be a number"),
        ({"worker_type": "regula"}, "worker_type", "'regular' or 'prefill' or 'decode'"),
        ({"launcher": "slurm"}, "launcher", "'local' or 'ray' or 'external'"),
        ({"engine": "vllm"}, "engine", "'sglang' or 'sim'"),
        ({"parallel": {"tp": 2}}, "parallel", "must be a table"),
        ({"lifecycle": 1}, "lifecycle", "true or false"),
        ({"lifecycle": False}, "lifecycle", "the manager's to act on"),
        ({"env_vars": {"A": 1}}, "env_vars.A", "1 is refused: it must be a string"),
        ({"env_vars": ["A"]}, "env_vars", "must be a table"),
        ({"urls": ["10.0.0.1:1"]}, "urls", "only a group with launcher = \"external\" has them, not 'local'"),
        ({**EXTERNAL, "urls": "10.0.0.1:1"}, "urls", "must be a list"),
        ({**EXTERNAL, "urls": ["10.0.0.1:1", "http://10.0.0.1:1/"]}, "urls[1]", "urls[0] has the same address"),
        ({**EXTERNAL, "urls": ["http://u:secret@h:1"]}, "urls[0]", "user info"),
        ({**EXTERNAL, "urls": [1]}, "urls", "must be a list"),
        ({**EXTERNAL, "replicas": 3}, "replicas", "3 is refused: an external group has one for each of its 2 urls"),
        ({**EXTERNAL, "server_args": {"dtype": "float32"}}, "server_args", "not launched"),
        ({**EXTERNAL, "env_vars": {"A": "1"}}, "env_vars", "not launched"),
        ({**EXTERNAL, "gpus_per_engine": 1}, "gpus_per_engine", "not launched"),
        ({**EXTERNAL, "nodes_per_engine": 2}, "nodes_per_engine", "not launched"),
        ({**EXTERNAL, "parallel": ParallelSpec(tp=2)}, "parallel", "not launched"),
        (
            {"gpus_per_engine": 3, "parallel": ParallelSpec(tp=3), "nodes_per_engine": 2},
            "nodes_per_engine",
            "2 is refused: gpus_per_engine = 3 cannot be spread over as many nodes evenly",
        ),
        (
            {"gpus_per_engine": 3, "parallel": ParallelSpec(tp=2)},
            "gpus_per_engine",
            "3 is refused: the parallel layout needs tp * pp * dp = 2 * 1 * 1 = 2",
        ),
    ],
)
def test_a_broken_rule_of_a_group(knobs: dict[str, Any], where: str, words: str) -> None:
    """The knob and its value, and no secret of a URL."""
    error = refused(EngineGroupSpec, **{"name": "g", **knobs})
    assert error.where == where
    assert words in error.problem
    assert "secret" not in str(error)


def test_gpus_fit_the_layout() -> None:
    """With data parallel attention the replicas of the attention share the ranks of tp; experts always do."""
    assert group(gpus_per_engine=8, parallel=ParallelSpec(tp=2, pp=2, dp=2)).gpus_per_engine == 8
    shared: dict[str, Any] = {"server_args": {"enable_dp_attention": True}, "parallel": ParallelSpec(tp=4, dp=2, ep=4)}
    assert group(gpus_per_engine=4, **shared).gpus_per_engine == 4
    assert "tp * pp = 4 * 1 = 4" in refused(EngineGroupSpec, "g", gpus_per_engine=8, **shared).problem
    assert refused(ParallelSpec, tp=4, ep=3).where == "ep"


def test_an_external_group_counts_its_urls() -> None:
    """Nobody has to say twice how many there are."""
    external = group(**EXTERNAL, lifecycle=False)
    assert external.replicas == 2
    assert external.urls == ("http://10.0.0.1:30000", "http://10.0.0.2:30000")
    assert group(launcher="external").replicas == 0, "they are added while it runs"


@pytest.mark.parametrize(
    ("knobs", "where", "words"),
    [
        ({"name": ""}, "", "model name '' is refused"),
        ({"name": "x" * 241}, "", "at most 240"),
        ({"model_path": ""}, "model_path", "non-empty string"),
        ({"model_path": None}, "model_path", "non-empty string"),
        ({"engine_groups": ()}, "engine_groups", "no engine group"),
        ({"engine_groups": (group("a"), group("a"))}, "engine_groups", "engine group 'a' is given twice"),
        ({"weight_source": "disk"}, "weight_source", "'static' or 'trainer' or 'dcs'"),
        ({"route_mode": "router"}, "route_mode", "'direct' or 'sglang_router'"),
        ({"route_mode": "sglang_router"}, "router_url", "is missing"),
        ({"router_url": "h:1"}, "router_url", "nobody would ask it"),
        ({"route_mode": "sglang_router", "router_url": 3}, "router_url", "must be a string"),
        ({"elastic_enabled": True}, "elastic_enabled", 'weight_source is "static"'),
        ({"versioned": True}, "versioned", 'weight_source is "static"'),
        ({"fault_tolerance_enabled": "yes"}, "fault_tolerance_enabled", "true or false"),
        ({"env_vars": {"A": True}}, "env_vars.A", "must be a string"),
        ({"adapter": "genrm", "sampling_defaults": {"temperature": math.inf}}, "sampling_defaults", "JSON has no such"),
        ({"adapter": "genrm", "chat_template_kwargs": {"a": {1: 2}}}, "chat_template_kwargs", "strings for keys"),
        ({"adapter": "genrm", "chat_template_kwargs": {"a": [{1}]}}, "chat_template_kwargs", "JSON has no set"),
        ({"sampling_defaults": {"temperature": 1}}, "sampling_defaults", 'add adapter = "genrm"'),
        ({"max_concurrent": 0}, "max_concurrent", "between 1 and"),
        ({"queue_size": 1}, "queue_size", "without max_concurrent"),
        (
            {"engine_groups": (group(), group("p", worker_type="prefill"))},
            "engine_groups[1].worker_type",
            "neither half of a prefill/decode pair can serve one alone",
        ),
        (
            {"engine_groups": (group("a", **EXTERNAL), group("b", launcher="external", urls=["10.0.0.2:30000"]))},
            "engine_groups[1].urls[0]",
            "engine_groups[0] has the same address",
        ),
        (
            {"engine_groups": (group(**EXTERNAL, lifecycle=False),), "weight_source": "trainer"},
            "engine_groups[0].lifecycle",
            "would go on with the old ones",
        ),
    ],
)
def test_a_broken_rule_of_a_model(knobs: dict[str, Any], where: str, words: str) -> None:
    """The knob, its value and the rule."""
    error = refused(InferenceModelSpec, **{"name": "m", "model_path": "/m", "engine_groups": (group(),), **knobs})
    assert error.where == where
    assert words in error.problem


def test_what_follows_from_a_model() -> None:
    """Who pushes weights, who fetches them, and who is asked."""
    pair = (group("p", worker_type="prefill"), group("d", worker_type="decode"))
    routed = model("m", *pair, route_mode="sglang_router", router_url="Router:3000/")
    assert (routed.needs_router, routed.router_url) == (True, "http://router:3000")
    derived = {
        source: (spec.needs_weight_update, spec.needs_dcs)
        for source in ("static", "trainer", "dcs")
        for spec in [model(weight_source=source)]
    }
    assert derived == {"static": (False, False), "trainer": (True, False), "dcs": (True, True)}
    assert model("math/teacher").engine_id(3) == "math/teacher/3"
    assert model(weight_source="trainer", elastic_enabled=True, versioned=True).elastic_enabled


@pytest.mark.parametrize(
    ("knobs", "where", "words"),
    [
        ({"role": ""}, "", "role name '' is refused"),
        ({"role": "generate"}, "", "generate"),
        ({"models": ()}, "models", "no model"),
        ({"models": (model("a"), model("a"))}, "models", "model 'a' is given twice"),
        ({"workload": "rollout"}, "workload", "'generation' or 'reward' or 'distillation'"),
        ({"deployment": "colocated"}, "deployment", "'decoupled' or 'colocated_split' or 'colocated_defer'"),
        ({"expose_engine_urls": 0}, "expose_engine_urls", "true or false"),
        ({"routing": RoutingSpec(default_model="b")}, "default_model", "not a model of this role, which has 'policy'"),
        ({"routing": RoutingSpec(route_keys={"a/b": "c"})}, 'route_keys."a/b"', "'c' is refused"),
        ({"models": (model("a"), model("b")), "routing": RoutingSpec(lenient_model=True)}, "lenient_model", "'a', 'b'"),
        (
            {"models": (model("a"), model("b")), "routing": RoutingSpec(route_keys={"a": "b"})},
            "route_keys.a",
            "'a' is itself a model of this role, which the key would shadow",
        ),
        (
            {"workload": "reward", "models": (model("a.b", weight_source="trainer"),)},
            'models."a.b".weight_source',
            "'trainer' is refused: the role's workload is 'reward'",
        ),
        (
            {"workload": "distillation", "models": (model(weight_source="dcs"),)},
            "models.policy.weight_source",
            'must be "static"',
        ),
    ],
)
def test_a_broken_rule_of_a_role(knobs: dict[str, Any], where: str, words: str) -> None:
    """The knob, its value and the rule."""
    error = refused(InferenceRoleSpec, **{"role": "rollout", "models": (model(),), **knobs})
    assert error.where == where
    assert words in error.problem


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"default_model": 1}, "default_model"),
        ({"lenient_model": "yes"}, "lenient_model"),
        ({"route_keys": ["a"]}, "route_keys"),
        ({"route_keys": {"a": 1}}, "route_keys.a"),
        ({"route_keys": {"": "m"}}, 'route_keys.""'),
        ({"session_fields": "user"}, "session_fields"),
        ({"session_fields": ["x"]}, "session_fields"),
    ],
)
def test_a_broken_rule_of_routing(knobs: dict[str, Any], where: str) -> None:
    """Shapes are judged without the models; route keys may hold a slash."""
    assert refused(RoutingSpec, **knobs).where == where
    assert RoutingSpec(route_keys={"openai/gsm8k": "m"}).route_keys == {"openai/gsm8k": "m"}


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"start_deadline_s": 0}, "start_deadline_s"),
        ({"stop_grace_s": math.inf}, "stop_grace_s"),
        ({"control_timeout_s": True}, "control_timeout_s"),
        ({"restart_backoff_s": "1h"}, "restart_backoff_s"),
        ({"python": ""}, "python"),
        ({"log_dir": 3}, "log_dir"),
        ({"bind_host": "node-1"}, "bind_host"),
        ({"bind_host": 3}, "bind_host"),
        ({"advertise_host": "0.0.0.0"}, "advertise_host"),
        ({"first_port": 80}, "first_port"),
        ({"last_port": 65536}, "last_port"),
        ({"first_port": 30000, "last_port": 29999}, "last_port"),
    ],
)
def test_a_broken_rule_of_the_manager(knobs: dict[str, Any], where: str) -> None:
    """The location is the knob."""
    assert refused(ManagerSpec, **knobs).where == where


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"pg_owner": ""}, "pg_owner"),
        ({"bundle_indices": ()}, "bundle_indices"),
        ({"bundle_indices": (0, 0)}, "bundle_indices[1]"),
        ({"bundle_indices": (True,)}, "bundle_indices[0]"),
        ({"bundle_indices": 1}, "bundle_indices"),
        ({"gpu_ids": (-1,)}, "gpu_ids[0]"),
        ({"activation_group": ""}, "activation_group"),
        ({"activation_phase": "score"}, "activation_phase"),
    ],
)
def test_a_broken_rule_of_a_placement(knobs: dict[str, Any], where: str) -> None:
    """A phase is of a group of engines that take turns."""
    assert refused(ModelPlacement, **{"pg_owner": "trimtab", "bundle_indices": (0,), **knobs}).where == where


def test_a_fleet_has_roles_with_names_of_their_own() -> None:
    """And no engine that serves two of them."""
    assert refused(FleetSpec, ()).where == "roles"
    assert "role 'rollout' is given twice" in refused(FleetSpec, (role(), role())).problem
    outside = model("a.b", group(launcher="external", urls=["h:1"]))
    error = refused(FleetSpec, (role(outside), role(outside, role="teacher")))
    assert error.where == 'roles.teacher.models."a.b".engine_groups[0].urls[0]'
    assert 'roles.rollout.models."a.b".engine_groups[0].urls[0] has the same address' in error.problem
