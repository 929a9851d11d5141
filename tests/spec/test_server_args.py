"""What a server is started with follows from its model and its group, and from nothing else."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.spec.samples import group, model
from trimtab.spec import ConfigError, EngineGroupSpec, ParallelSpec, engine_env, server_args, thaw

POISON = {"tp_size": 7, "tp-size": 7, "max-running-requests": 7, "mem-fraction-static": 0.7}


def test_nothing_global_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, argv and another model's settings are poisoned; the arguments of this one stay what they were."""
    own = group(parallel=ParallelSpec(tp=2), gpus_per_engine=2, server_args={"dtype": "float32"}, env_vars={"A": "1"})
    served = model("teacher", own, env_vars={"A": "0", "B": "0"})
    expected = server_args(served, own), engine_env(served, own)
    for name in POISON:
        for variable in (name, name.upper(), f"SGLANG_{name.upper()}", f"TRIMTAB_{name.upper()}"):
            monkeypatch.setitem(os.environ, variable.replace("-", "_"), "7")
    monkeypatch.setattr(sys, "argv", ["python", *(f"--{name}=7" for name in POISON)])
    monkeypatch.setattr("builtins.args", POISON, raising=False)
    other = group("other", server_args={"max-running-requests": 7}, env_vars={"C": "7"})
    server_args(model("actor", other, weight_source="trainer"), other)
    assert (server_args(served, own), engine_env(served, own)) == expected
    flags, variables = expected
    assert (thaw(flags), thaw(variables)) == ({"tp-size": 2, "dtype": "float32"}, {"A": "1", "B": "0"})


def test_the_layout_becomes_flags() -> None:
    """Sizes of one are left to the server's own defaults; a simulated engine has no layout, whatever it stands for."""
    layout = ParallelSpec(tp=4, pp=2, dp=2, ep=2)
    flags = {"tp-size": 4, "pp-size": 2, "dp-size": 2, "ep-size": 2}
    assert server_args(model(), group(parallel=layout)) == flags
    assert server_args(model(), group(parallel=layout, engine="sim")) == {}
    assert server_args(model(), group()) == {}
    assert server_args(model(), group(worker_type="decode")) == {"disaggregation-mode": "decode"}


def test_any_other_flag_passes_through() -> None:
    """In one spelling, with its value untouched."""
    given = {"max_running_requests": 8, "enable-metrics": True, "cuda-graph-bs": [1, 2], "mem-fraction-static": 0.5}
    flags = {"max-running-requests": 8, "enable-metrics": True, "cuda-graph-bs": [1, 2], "mem-fraction-static": 0.5}
    assert server_args(model(), group(server_args=given)) == flags


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("host", "0.0.0.0", "an address of its own"),
        ("port", 1, "an address of its own"),
        ("nccl_port", 1, "an address of its own"),
        ("model-path", "/m", "write model_path"),
        ("served_model_name", "m", "the name as the table's"),
        ("api-key", "secret", "engine_key_file"),
        ("admin_api_key", "secret", "engine_key_file"),
        ("tp-size", 2, "write parallel.tp"),
        ("tp", 2, "write parallel.tp"),
        ("nnodes", 2, "which nodes"),
        ("disaggregation-mode", "prefill", "write worker_type"),
        ("weight-version", "1", "which weights"),
        ("config", "x.yaml", "write its values here"),
        ("--dtype", "float32", "without its dashes"),
        ("", 1, "without its dashes"),
        ("a b", 1, "without its dashes"),
        ("dtype", None, "must be a string, a number, true, false, or a list"),
        ("dtype", {"a": 1}, "must be a string, a number, true, false, or a list"),
        ("dtype", [True], "list of strings and numbers"),
        ("dtype", [[1]], "list of strings and numbers"),
    ],
)
def test_a_flag_that_is_another_owners_is_refused(name: str, value: Any, words: str) -> None:
    """With the reason, and without the text of a key."""
    with pytest.raises(ConfigError) as caught:
        EngineGroupSpec("g", server_args={name: value})
    assert caught.value.where.startswith("server_args.")
    assert words in caught.value.problem
    assert "secret" not in str(caught.value)


def test_a_flag_in_two_spellings_is_given_twice() -> None:
    """Which of the two would win is nobody's guess."""
    with pytest.raises(ConfigError, match="'max-running-requests' is given twice"):
        EngineGroupSpec("g", server_args={"max-running-requests": 1, "max_running_requests": 2})
