"""Configuration of adapters and of registration: what is taken, and what is refused where it stands."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trimtab_gateway import ConfigError, GatewayConfig, ModelConfig, RoleConfig, config_from_table

JUDGE: dict[str, Any] = {
    "adapter": "genrm",
    "sampling_defaults": {"temperature": 0.2, "max_response_len": 1024, "stop": ["\n"]},
    "chat_template_kwargs": {"enable_thinking": False},
}


def test_a_judge_without_engines() -> None:
    """``engines = []`` is a pool that fills while the gateway runs; the tables of an adapter are taken over."""
    table = {"roles": {"genrm": {"models": {"judge": {"engines": [], **JUDGE}}}}}
    (model,) = config_from_table(table).roles[0].models
    assert (model.engines, model.adapter) == ((), "genrm")
    assert model.sampling_defaults == JUDGE["sampling_defaults"]
    assert model.chat_template_kwargs == JUDGE["chat_template_kwargs"]
    assert hash(model) == hash(model)


def test_nobody_changes_a_configuration() -> None:
    """The caller's dictionary is not the configuration's."""
    given = {"temperature": 0.2, "stop": ["a"]}
    model = ModelConfig("judge", adapter="genrm", sampling_defaults=given)
    given["stop"].append("b")  # type: ignore[attr-defined]
    assert model.sampling_defaults == {"temperature": 0.2, "stop": ["a"]}


@pytest.mark.parametrize(
    ("knobs", "where", "words"),
    [
        ({"adapter": "teacher"}, "adapter", "'genrm'"),
        ({"adapter": "genrm", "sampling_defaults": [1]}, "sampling_defaults", "table"),
        ({"adapter": "genrm", "sampling_defaults": {"temprature": 1}}, "sampling_defaults", "temprature"),
        ({"adapter": "genrm", "sampling_defaults": {"n": 2}}, "sampling_defaults", "one answer"),
        ({"adapter": "genrm", "sampling_defaults": {"temperature": math.nan}}, "sampling_defaults", "JSON"),
        ({"adapter": "genrm", "chat_template_kwargs": {"a": object()}}, "chat_template_kwargs", "JSON"),
        ({"sampling_defaults": {"temperature": 1}}, "sampling_defaults", "adapter"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs", "adapter"),
    ],
)
def test_a_broken_rule_of_an_adapter(knobs: dict[str, Any], where: str, words: str) -> None:
    """Named by its key, with the reason."""
    with pytest.raises(ConfigError) as caught:
        ModelConfig("judge", **knobs)
    assert caught.value.where == where
    assert words in caught.value.problem


@pytest.mark.parametrize("value", [["10.0.0.0/33"], ["a b"], "10.0.0.0/8", [1], [""]])
def test_a_broken_allow_list(value: object) -> None:
    """An entry that means nothing is a mistake, not a closed door."""
    with pytest.raises(ConfigError) as caught:
        GatewayConfig((RoleConfig("r", (ModelConfig("m"),)),), worker_allow=value)  # type: ignore[arg-type]
    assert caught.value.where == "worker_allow"
