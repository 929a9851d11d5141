"""Specs are values: nobody changes one, at any depth."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tests.spec.samples import group, model, role
from trimtab.spec import FleetSpec, FrozenMapping, RoutingSpec, thaw


def test_what_the_caller_keeps_is_not_the_specs() -> None:
    """Lists and tables, however deep."""
    stop, groups, keys = ["a"], [group()], {"k": "policy"}
    spec = model(engine_groups=groups, adapter="genrm", sampling_defaults={"stop": stop})
    served = role(spec, routing=RoutingSpec(route_keys=keys))
    stop.append("b")
    groups.clear()
    keys["k"] = "other"
    assert spec.sampling_defaults == {"stop": ["a"]}
    assert len(spec.engine_groups) == 1
    assert served.routing.route_keys == {"k": "policy"}


def test_nothing_can_be_set() -> None:
    """Neither a field, nor an entry of a table, nor one of a list in it."""
    spec: Any = model(adapter="genrm", chat_template_kwargs={"a": {"b": [1]}})
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"
    with pytest.raises(TypeError):
        spec.chat_template_kwargs["a"] = 1
    with pytest.raises(TypeError):
        spec.chat_template_kwargs["a"]["b"] = 1
    with pytest.raises(TypeError):
        spec.chat_template_kwargs["a"]["b"][0] = 2
    with pytest.raises(AttributeError):
        spec.chat_template_kwargs._entries = {}
    with pytest.raises(AttributeError):
        del spec.chat_template_kwargs._entries


def test_equal_specs_are_one_key() -> None:
    """Two readings of one file may be compared and looked up; order of keys does not count."""
    one = group(server_args={"a": 1, "b": [1, 2]})
    two = group(server_args={"b": (1, 2), "a": 1})
    assert {one: "x"}[two] == "x"
    assert one != group(server_args={"a": 1})
    assert one.server_args != list(one.server_args.items())  # type: ignore[comparison-overlap]  # no mapping


def test_a_frozen_table_pickles_prints_and_thaws() -> None:
    """As the plain data it was made of."""
    table: FrozenMapping[Any] = model(adapter="genrm", chat_template_kwargs={"a": {"b": [1]}}).chat_template_kwargs  # type: ignore[assignment]
    assert pickle.loads(pickle.dumps(table)) == table
    assert repr(table) == "{'a': {'b': (1,)}}"
    assert thaw(table) == {"a": {"b": [1]}}
    assert type(thaw(table)["a"]) is dict


def test_the_table_of_the_gateway_is_frozen_too() -> None:
    """It is the gateway's to judge, and nobody's to change."""
    raw = {"worker_allow": ["10.0.0.0/8"]}
    fleet = FleetSpec((role(),), gateway=raw)
    raw["worker_allow"].append("0.0.0.0/0")
    assert fleet.gateway == {"worker_allow": ["10.0.0.0/8"]}
