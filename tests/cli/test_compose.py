"""The gateway in front of a managed fleet has every knob that the fleet's file says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.spec.samples import group, model, role
from trimtab.cli.compose import gateway_config
from trimtab.spec import AdapterSpec, ConfigError, FleetSpec, PoolSpec, RoutingSpec

WORDS = {
    "on_ambiguous": "resolve",
    "on_drain_timeout": "report",
    "recovery": "restart",
    "on_unhealthy": "fail_pool",
    "load": "plain",
}


def other(field: dataclasses.Field[Any]) -> Any:
    """A value of a knob that is not its default."""
    default: Any = field.default
    if isinstance(default, bool):
        return not default
    return WORDS[field.name] if isinstance(default, str) else (default or 0) + 1


POOL = {field.name: other(field) for field in dataclasses.fields(PoolSpec)}
ADAPTER: dict[str, Any] = {
    "adapter": "genrm",
    "sampling_defaults": {"temperature": 0.5},
    "chat_template_kwargs": {"enable_thinking": False},
}
ROUTING: dict[str, Any] = {
    "default_model": "policy",
    "lenient_model": False,
    "route_keys": {"k": "policy"},
    "session_fields": ("user",),
}


def test_every_knob_arrives() -> None:
    """None of a pool, of an adapter or of routing is left at its default; the pools are empty."""
    for kind, values in ((AdapterSpec, ADAPTER), (RoutingSpec, ROUTING)):
        assert {field.name for field in dataclasses.fields(kind)} == set(values)
    policy = model("policy", weight_source="trainer", **POOL, **ADAPTER)
    plain = model("other")
    spec = role(policy, plain, routing=RoutingSpec(**ROUTING), expose_engine_urls=False)
    config = gateway_config(FleetSpec((spec,), gateway={"port": 9000}), host="127.0.0.2")
    assert (config.port, config.host) == (9000, "127.0.0.2")
    (served,) = config.roles
    assert {key: getattr(served, key) for key in ROUTING} == ROUTING
    assert not served.expose_engine_urls
    first, second = served.models
    assert {key: getattr(first, key) for key in {**POOL, **ADAPTER}} == {**POOL, **ADAPTER}
    assert (first.engines, first.router_url) == ((), None)
    assert (second.name, second.max_concurrent) == ("other", None)


def test_a_bad_gateway_table_is_named() -> None:
    """Where it stands in the file."""
    with pytest.raises(ConfigError, match=r"gateway\.prot: unknown key; did you mean 'port'"):
        gateway_config(FleetSpec((role(model("m", group())),), gateway={"prot": 1}))


def test_a_gateway_in_front_of_itself_is_refused() -> None:
    """Also where it stands among the engines that run already."""
    fleet = FleetSpec((role(model("a.b", group(launcher="external", urls=["localhost:8080"]))),))
    with pytest.raises(ConfigError, match="this gateway itself") as caught:
        gateway_config(fleet)
    assert caught.value.where == 'roles.rollout.models."a.b".engine_groups[0].urls[0]'
    assert gateway_config(fleet, port=0).port == 0


def test_a_model_behind_a_router_is_not_launched() -> None:
    """Nobody would register its engines with that router: the message says who serves such a model."""
    routed = model("m", route_mode="sglang_router", router_url="h:3000")
    with pytest.raises(ConfigError, match="`trimtab serve`") as caught:
        gateway_config(FleetSpec((role(routed),)))
    assert caught.value.where == "roles.rollout.models.m.route_mode"
