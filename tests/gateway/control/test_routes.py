"""Routing from the configuration to the wire: route keys, router URLs, session fields, and the table in discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trimtab import RoutingTable
from trimtab.testing import ScriptedEngine
from trimtab_gateway import ConfigError, EngineConfig, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.config import config_from_table

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Start


def config_of(role: dict[str, Any], **models: dict[str, Any]) -> GatewayConfig:
    """A configuration of one role from the tables of a file."""
    return config_from_table({"gateway": {"port": 0}, "roles": {"teacher": {**role, "models": models}}})


def test_values_of_a_file() -> None:
    """Keys, fields and a router's URL, which is normalised."""
    role = {"route_keys": {"openai/gsm8k": "math"}, "session_fields": ["user"], "default_model": "code"}
    config = config_of(role, math={"engines": ["10.0.0.1:1"]}, code={"router_url": "HTTP://Router:3000/"})
    (teacher,) = config.roles
    assert teacher.route_keys == {"openai/gsm8k": "math"}
    assert teacher.session_fields == ("user",)
    assert teacher.router_urls == {"code": "http://router:3000"}


@pytest.mark.parametrize(
    ("role", "model", "where", "problem"),
    [
        ({"route_keys": {"k": "nope"}}, {}, "route_keys.k", "'nope' is refused"),
        ({"route_keys": {"": "m"}}, {}, 'route_keys.""', "0 bytes"),
        ({"route_keys": {"k": 1}}, {}, "route_keys.k", "name of a model"),
        ({"route_keys": ["k"]}, {}, "route_keys", "must be a table"),
        ({"session_fields": ["id"]}, {}, "session_fields", "session_id, user"),
        ({"session_fields": "user"}, {}, "session_fields", "must be a list"),
        ({}, {"router_url": "http://u:secret@h:1"}, "models.m.router_url", "user info"),
        ({}, {"router_url": 3000}, "models.m.router_url", "must be a string"),
        ({}, {"router_url": "h:1", "engines": ["h:2"]}, "models.m.router_url", "the one or the other"),
    ],
)
def test_what_breaks_a_rule_is_refused(role: dict[str, Any], model: dict[str, Any], where: str, problem: str) -> None:
    """One message per rule, with the place; no secret in it."""
    with pytest.raises(ConfigError, match=problem) as caught:
        config_of(role, m=model or {"engines": ["10.0.0.1:1"]})
    assert caught.value.where == f"roles.teacher.{where}"
    assert "secret" not in str(caught.value)


def test_a_gateway_is_not_its_own_router() -> None:
    """Its own address would send a request round and round."""
    model = ModelConfig("m", router_url="127.0.0.1:8080")
    with pytest.raises(ConfigError, match="this gateway itself"):
        GatewayConfig((RoleConfig("teacher", (model,)),))


async def test_discovery_rebuilds_the_table(serve: Start) -> None:
    """What a direct client makes of the document routes as the gateway does; a router is listed as no engine."""
    with ScriptedEngine() as engine, ScriptedEngine() as router:
        role = {"route_keys": {"gsm": "math"}, "session_fields": ["session_id"], "default_model": "code"}
        config = config_of(role, math={"engines": [engine.authority]}, code={"router_url": router.authority})
        served = await serve(config)
        document = await served.json("/teacher/engines")
        table = RoutingTable.from_discovery(document)
        assert table.role == "teacher"
        assert table.resolve({}).router_url == router.url
        assert (table.resolve({"route_key": "gsm"}).model, table.resolve({"model": "math"}).router_url) == (
            "math",
            None,
        )
        assert table.session({"session_id": "s", "user": "u"}) == "s"
        assert document["models"]["code"]["engines"] == []
        assert [each["base_url"] for each in document["models"]["math"]["engines"]] == [engine.url]


async def test_a_lenient_role_says_so(serve: Start) -> None:
    """The switch is part of the document."""
    model = ModelConfig("m", (EngineConfig("127.0.0.1:1"),))
    served = await serve(GatewayConfig((RoleConfig("teacher", (model,), lenient_model=True),), port=0))
    assert RoutingTable.from_discovery(await served.json("/engines")).resolve({"model": "any"}).model == "m"


@pytest.mark.parametrize("document", [{}, {"models": 1}, {"models": {"m": 1}}, {"models": {"m": {"router_url": 1}}}])
def test_what_is_no_document_is_refused(document: dict[str, Any]) -> None:
    """A typed error, not a table that routes anything."""
    with pytest.raises(ValueError, match=r"document|no model"):
        RoutingTable.from_discovery(document)
