"""Configuration objects: every rule is one message that names the value and where it stands."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from trimtab_gateway import ConfigError, EngineConfig, GatewayConfig, ModelConfig, RoleConfig

ENGINE = EngineConfig("127.0.0.1:30000")
MODEL = ModelConfig("tiny", (ENGINE,))
ROLE = RoleConfig("rollout", (MODEL,))


def refused(build: Any, *args: Any, **kwargs: Any) -> ConfigError:
    """The error of ``build(...)``, which must be refused."""
    with pytest.raises(ConfigError) as caught:
        build(*args, **kwargs)
    assert caught.value.code == "invalid_config"
    assert isinstance(caught.value, ValueError)
    return caught.value


def test_an_engine_is_normalised() -> None:
    """Spellings of one address become one address, and the id defaults to the authority."""
    engine = EngineConfig("HTTP://Node-1:30000/", 8)
    assert (engine.url, engine.capacity, engine.backend_id) == ("http://node-1:30000", 8.0, "node-1:30000")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:30000/v1",
        "http://user:secret@10.0.0.1:30000",
        "10.0.0.1:99999",
        "10.0.0.1:port",
        "10.0.0.1:0",
        "ftp://10.0.0.1:30000",
        "http://10.0.0.1:30000?x=1",
        "",
        "http://",
    ],
)
def test_a_bad_engine_address_is_refused(url: str) -> None:
    """Path, user info, bad port, other schemes: the message names the key and the rule; a password never appears."""
    error = refused(EngineConfig, url)
    assert error.where == "url"
    assert "is refused" in error.problem
    assert "secret" not in str(error)


@pytest.mark.parametrize("capacity", [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, 1e300, 10**400])
def test_a_capacity_that_is_no_positive_finite_number_is_refused(capacity: float) -> None:
    """0, NaN, negative and infinite capacities would make one engine take everything or nothing."""
    assert refused(EngineConfig, "127.0.0.1:30000", capacity).where == "capacity"


@pytest.mark.parametrize("capacity", ["8", None, True, [8]])
def test_a_capacity_that_is_no_number_is_refused(capacity: Any) -> None:
    """A string that looks like a number is a mistake in the file, not a number."""
    error = refused(EngineConfig, "127.0.0.1:30000", capacity)
    assert str(error) == f"capacity: {capacity!r} is refused: it must be a number"


def test_the_same_engine_twice_in_a_model_is_refused() -> None:
    """Also in another spelling: it would be counted as two engines."""
    twice = (EngineConfig("10.0.0.1:30000", id="a"), EngineConfig("http://10.0.0.1:30000/", id="b"))
    error = refused(ModelConfig, "tiny", twice)
    assert error.where == "engines[1].url"
    assert "engines[0] has the same address" in error.problem


def test_an_engine_id_is_unique_in_its_role() -> None:
    """An id names one engine in headers, logs and discovery."""
    models = (
        ModelConfig("a", (EngineConfig("10.0.0.1:30000", id="x"),)),
        ModelConfig("b", (EngineConfig("10.0.0.2:30000", id="x"),)),
    )
    error = refused(RoleConfig, "rollout", models)
    assert str(error) == "models.b.engines[0].id: 'x' is refused: models.a.engines[0] has the same id"


@pytest.mark.parametrize(
    ("host", "engine"),
    [
        ("127.0.0.1", "127.0.0.1:8080"),
        ("127.0.0.1", "http://LOCALHOST:8080/"),
        ("::1", "[::1]:8080"),
        ("0.0.0.0", "127.0.0.1:8080"),
        ("::", "[::1]:8080"),
    ],
)
def test_a_gateway_in_front_of_itself_is_refused(host: str, engine: str) -> None:
    """It would find itself alive and pass the first request round until it has no sockets."""
    roles = (RoleConfig("rollout", (ModelConfig("a.b", (EngineConfig(engine),)),)),)
    error = refused(GatewayConfig, roles, host, 8080, admin_key="secret")
    assert error.where == 'roles.rollout.models."a.b".engines[0].url'
    assert GatewayConfig(roles, host, 0, admin_key="secret").port == 0
    assert GatewayConfig(roles, "10.0.0.1", 8080, admin_key="secret").host == "10.0.0.1"


ENDPOINTS = (
    *("abort_request", "chat", "engines", "generate", "health", "live"),
    *("metrics", "openapi.json", "ready", "status", "ui", "v1", "workers"),
)


@pytest.mark.parametrize("name", ["", "Rollout", "a/b", "a b", "-a", "é", "x" * 65, 3, None, *ENDPOINTS])
def test_a_role_name_is_one_plain_path_segment(name: Any) -> None:
    """A role that is no path segment, or is an endpoint, could not be reached."""
    assert "role name" in str(refused(RoleConfig, name, (MODEL,)))


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "x" * 257, "é" * 129, None])
def test_a_model_name_prints_and_is_bounded(name: Any) -> None:
    """A model name becomes a label and part of answers."""
    assert "model name" in str(refused(ModelConfig, name))


def test_duplicate_roles_and_models_are_refused() -> None:
    """The second of two would hide the first."""
    assert str(refused(GatewayConfig, (ROLE, ROLE))) == "roles: role 'rollout' is given twice"
    other = ModelConfig("tiny", (EngineConfig("127.0.0.1:30001"),))
    assert str(refused(RoleConfig, "rollout", (MODEL, other))) == "models: model 'tiny' is given twice"


def test_the_default_model_is_a_model_of_the_role() -> None:
    """The message lists the models there are."""
    error = refused(RoleConfig, "rollout", (MODEL,), default_model="tinny")
    assert str(error) == "default_model: 'tinny' is not a model of this role, which has 'tiny'"


def test_a_sole_model_is_the_default() -> None:
    """With several, a request must name one unless a default is configured."""
    two = (MODEL, ModelConfig("other"))
    assert ROLE.effective_default_model == "tiny"
    assert RoleConfig("rollout", two).effective_default_model is None
    assert RoleConfig("rollout", two, default_model="other").effective_default_model == "other"


def test_a_lenient_role_has_one_model() -> None:
    """Ignoring the name a client sends cannot tell two models apart."""
    error = refused(RoleConfig, "rollout", (MODEL, ModelConfig("other")), lenient_model=True)
    assert error.where == "lenient_model"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "8080"),
        ("port", True),
        ("lease_socket", ""),
        ("lease_socket", "relative.sock"),
        ("lease_socket", "/" + 107 * "x"),
        ("lease_socket", "/a\0b"),
        ("lease_socket", 1),
        ("worker_threads", 0),
        ("max_body_bytes", 0),
        ("max_body_bytes", 1.5),
        ("connect_timeout_s", 0),
        ("connect_timeout_s", -1),
        ("connect_timeout_s", math.nan),
        ("connect_timeout_s", math.inf),
        ("connect_timeout_s", None),
        ("first_byte_timeout_s", 0),
        ("idle_timeout_s", "1"),
        ("total_timeout_s", 1e9),
        ("engine_keepalive_s", -1),
        ("engine_keepalive_s", 0),
        ("abort_grace_s", 0),
        ("abort_grace_s", True),
        ("probe_interval_s", 0),
        ("probe_timeout_s", 0),
        ("connect_timeout_s", 1e-12),
        ("idle_timeout_s", 1e-12),
        ("admin_key", ""),
        ("admin_key", "two words"),
        ("admin_key", 1),
        ("engine_key", "schlüssel"),
        ("host", ""),
        ("host", "example.org"),
        ("host", None),
    ],
)
def test_a_gateway_knob_out_of_its_range_is_refused(key: str, value: Any) -> None:
    """The location is the knob."""
    assert refused(GatewayConfig, (ROLE,), **{key: value}).where == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session_ttl_s", 0),
        ("session_ttl_s", 1e-12),
        ("session_ttl_s", math.nan),
        ("session_cap", 0),
        ("max_concurrent", 0),
        ("max_concurrent", "1"),
        ("queue_size", -1),
        ("queue_size", 8),
        ("queue_timeout_s", 0),
        ("queue_timeout_s", 5),
        ("versioned", 1),
        ("on_ambiguous", "ignore"),
        ("on_ambiguous", True),
        ("on_drain_timeout", "ignore"),
        ("sender_ttl_s", 0),
        ("sender_ttl_s", math.inf),
        ("recovery", "forget"),
        ("unhealthy_budget_s", 0),
        ("on_unhealthy", "ignore"),
        ("on_unhealthy", "fail_pool"),
        ("ramp_s", 0),
    ],
)
def test_a_model_knob_out_of_its_range_is_refused(key: str, value: Any) -> None:
    """The location is the knob."""
    assert refused(ModelConfig, "tiny", **{key: value}).where == key


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_a_host_others_can_reach_takes_an_admin_key(host: str) -> None:
    """Without one whoever connects could fail the pools: the message says so, and where a key is looked for."""
    error = refused(GatewayConfig, (ROLE,), host=host)
    assert error.where == "host"
    for place in ("TRIMTAB_ADMIN_KEY", "admin_key_file", "--admin-key-file"):
        assert place in error.problem
    assert GatewayConfig((ROLE,), host=host, admin_key="k").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    """Every spelling of this machine only."""
    assert GatewayConfig((ROLE,), host=host).host == host


def test_a_configuration_is_frozen() -> None:
    """Also against a list that the caller keeps."""
    engines = [ENGINE]
    model = ModelConfig("tiny", engines)  # type: ignore[arg-type]  # a caller without type checks
    engines.clear()
    assert model.engines == (ENGINE,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.name = "other"  # type: ignore[misc]
