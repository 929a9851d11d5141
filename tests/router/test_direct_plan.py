"""What a direct request is made of, and when it may be sent: no sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab import InvalidRequest, NotDirect, RoutingTable, StaleDiscovery
from trimtab.direct_plan import Address, check_direct, check_granted, plan
from trimtab.discovery_feed import Directory
from trimtab.lease_record import RouterLease

ENGINE = {"engine_id": "e", "generation": 3, "base_url": "http://h:1", "direct_eligible": True}
ROUTER = "http://10.0.0.9:3000"


def directory(model: dict[str, Any], **members: Any) -> Directory:
    """A document with the one model ``m``."""
    document = {"role": "r", "models": {"m": model}, **members}
    return Directory(document, RoutingTable.from_discovery(document), None)


def lease(**members: Any) -> RouterLease:
    """A lease on the engine of the document."""
    values = {"id": "0", "backend_id": "e", "backend_generation": 3, "authority": "h:1", "url": "http://h:1"}
    rest = {"session": None, "weight_version": None, "epoch": None, "sticky": False, "reason": "new", "waited_ms": 0}
    return RouterLease(**{**values, **rest, **members})


@pytest.mark.parametrize(
    ("path", "payload", "sent"),
    [
        ("/generate", {"model": "m", "route_key": "k", "rid": ["r-1"], "x": None}, {"rid": ["r-1"], "x": None}),
        ("/v1/chat/completions", {"model": "m", "route_key": "k", "rid": "r-1"}, {"model": "m", "rid": "r-1"}),
        ("/v1/score", {"model": "m"}, {"model": "m"}),
    ],
)
def test_the_engine_gets_what_a_gateway_would_send(path: str, payload: dict[str, Any], sent: dict[str, Any]) -> None:
    """Selectors are left out, an id is put in where SGLang takes one, and the caller's payload is not touched."""
    before = dict(payload)
    made = plan(directory({"engines": [ENGINE]}, routing={"route_keys": {"k": "m"}}), path, payload, "s")
    assert json.loads(made.body) == sent
    assert payload == before
    assert made.request_ids == (("r-1",) if "rid" in sent else ())
    assert made.headers() == {"Content-Type": "application/json"}


@pytest.mark.parametrize("rid", ["", "1", "a1", ["r-1", "1"], ["r-1", 7]])
def test_an_id_that_could_abort_others_is_not_used(rid: object) -> None:
    """Engines abort by prefix: such a request is ended by closing its connection alone, and that confirms nothing."""
    made = plan(directory({"engines": [ENGINE]}), "/generate", {"rid": rid}, None)
    assert (json.loads(made.body)["rid"], made.request_ids) == (rid, ())


def test_an_absent_id_is_filled_in() -> None:
    """By one of 32 digits, by which the request can be aborted."""
    made = plan(directory({"engines": [ENGINE]}), "/generate", {"rid": None}, None)
    (rid,) = made.request_ids
    assert (json.loads(made.body), len(rid)) == ({"rid": rid}, 32)


def test_a_router_is_called_with_its_own_session_header() -> None:
    """The lease must be on that router; engines that it has are nobody's targets."""
    known = directory({"router_url": ROUTER, "engines": []})
    made = plan(known, "/generate", {}, "s")
    assert made.headers()["X-SMG-Routing-Key"] == "s"
    check_direct(known, made.route)
    assert check_granted(known, made.route, lease(url=ROUTER))
    assert not check_granted(known, made.route, lease())


def test_b75_prefill_and_decode_workers_are_never_targets() -> None:
    """They stand under a key of their own, and no lease makes one a target."""
    known = directory({"engines": [], "pd_workers": [ENGINE]})
    route = known.table.resolve({})
    with pytest.raises(NotDirect, match="router_url"):
        check_direct(known, route)
    assert not check_granted(known, route, lease())


def test_an_engine_of_another_incarnation_is_another_engine() -> None:
    """Id and generation must match, and its URL must be told."""
    known = directory({"engines": [ENGINE]})
    route = known.table.resolve({})
    assert check_granted(known, route, lease())
    assert not check_granted(known, route, lease(backend_generation=4))
    assert not check_granted(directory({"engines": [{**ENGINE, "base_url": None}]}), route, lease())


def test_a_stale_document_vouches_for_nothing() -> None:
    """Whatever it says about its engines."""
    known = directory({"engines": [ENGINE]}, stale=True)
    with pytest.raises(StaleDiscovery):
        check_direct(known, known.table.resolve({}))


@pytest.mark.parametrize("url", ["http://h:1/a/b", "http://h:1/?q=1", "http://h:1#f"])
def test_a_url_that_is_no_role(url: str) -> None:
    """A role is one segment."""
    with pytest.raises(InvalidRequest, match="/role"):
        Address(url)
