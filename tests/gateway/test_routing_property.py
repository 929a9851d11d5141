"""The gateway and a direct client route alike: the same table and request get the same answer from both."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab import Pool, RoutingTable
from trimtab._core import DataPlane, Role
from trimtab.errors import RoutingError

NAMES = st.sampled_from(["a", "b", "c", "openai/gsm8k", "\u00e9\u6f22", 'q"\\', "x" * 1024])
OTHERS = st.one_of(st.none(), st.booleans(), st.integers(), st.lists(NAMES, max_size=2), st.just({}))
VALUES = st.one_of(NAMES, NAMES, NAMES, st.sampled_from(["", "unknown", "x" * 1025, "x" * 20_000, "\ud83d"]), OTHERS)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Keywords of a valid table."""
    models = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    some = st.sampled_from(models)
    return {
        "models": models,
        "route_keys": draw(st.dictionaries(NAMES, some, max_size=3)),
        "default_model": draw(st.none() | some),
        "lenient_model": draw(st.booleans()),
    }


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """Bodies that name a model in every way, or in none."""
    return st.fixed_dictionaries({}, optional={"model": VALUES, "route_key": VALUES, "text": VALUES})


def by_binding(table: RoutingTable, request: dict[str, Any]) -> tuple[str, str]:
    """The answer of a direct client."""
    try:
        return ("model", table.resolve(request).model)
    except RoutingError as error:
        return (error.code, str(error))


def by_gateway(client: httpx.Client, path: str, request: dict[str, Any]) -> tuple[str, str]:
    """The answer over HTTP: a pool without engines refuses in the name of its model."""
    error = client.post(path, content=json.dumps(request)).json()["error"]
    if error["code"] == "no_eligible_backend":
        return ("model", error["detail"]["model"])
    return (error["code"], error["message"])


def compare(table: dict[str, Any], bodies: list[dict[str, Any]]) -> None:
    """Asks both for every body."""
    options = {key: value for key, value in table.items() if key != "models"}
    binding = RoutingTable("r", table["models"], **options)
    discovered = RoutingTable.from_discovery(
        {
            "role": "r",
            "lenient_model": table["lenient_model"],
            "routing": {"default_model": table["default_model"], "route_keys": table["route_keys"]},
            "models": {name: {"router_url": None, "engines": []} for name in table["models"]},
        }
    )
    pools = {name: Pool(f"r/{number}") for number, name in enumerate(table["models"])}
    plane = DataPlane.start(roles=[Role("r", pools, **options)], worker_threads=1, probe_interval_s=3600.0)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{plane.port}", trust_env=False) as client:
            for body in bodies:
                answer = by_binding(binding, body)
                assert by_binding(discovered, body) == answer
                for path in ("/generate", "/v1/chat/completions"):
                    assert by_gateway(client, path, body) == answer
    finally:
        plane.shutdown(0.0)


COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(COMMON, max_examples=15)
@given(tables(), st.lists(requests(), min_size=5, max_size=12))
def test_gateway_and_direct_client_route_alike(table: dict[str, Any], bodies: list[dict[str, Any]]) -> None:
    """Random tables and requests: model, code and message are equal, over HTTP and through the binding."""
    compare(table, bodies)


@pytest.mark.slow
@settings(COMMON, max_examples=300)
@given(tables(), st.lists(requests(), min_size=5, max_size=30))
def test_gateway_and_direct_client_route_alike_at_length(table: dict[str, Any], bodies: list[dict[str, Any]]) -> None:
    """The same, many times."""
    compare(table, bodies)
