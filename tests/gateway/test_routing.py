"""Which model a request goes to, what the engine sees of it, and which session it belongs to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.expect import error
from tests.support.lab import make_pool
from tests.support.scripts import one

if TYPE_CHECKING:
    from tests.support.engine import ScriptedEngine
    from tests.support.lab import Gateway, Lab

ENDPOINTS = ["embeddings", "score", "rerank", "responses", "completions", "chat/completions"]
WITHOUT_ID = {"score", "rerank", "responses"}


async def teachers(lab: Lab, **options: Any) -> tuple[Gateway, ScriptedEngine, ScriptedEngine]:
    """A role with two models, ``math`` and ``code``, an engine each; route key ``openai/gsm8k`` means ``math``."""
    math, code = await lab.engines(2, one())
    pools = {("teacher", "math"): make_pool([math]), ("teacher", "code"): make_pool([code])}
    role = {"route_keys": {"openai/gsm8k": "math"}, **options}
    return await lab.gateway(pools=pools, role_options=role), math, code


async def test_a_route_key_chooses_the_model_and_stays_here(lab: Lab) -> None:
    """The mapped model's engine runs it, and sees neither selector; every other byte is the client's."""
    gateway, math, code = await teachers(lab)
    body = b'{"rid":"r-1", "input_ids": [1,2.50], "route_key":"openai/gsm8k", "x":{"route_key":1,"model":2}}'
    assert (await gateway.post("/teacher/generate", body)).status == 200
    assert math.requests[0].body == b'{"rid":"r-1", "input_ids": [1,2.50], "x":{"route_key":1,"model":2}}'
    assert code.requests == []


async def test_an_explicit_model_wins(lab: Lab) -> None:
    """The model decides, whatever the route key says; on an OpenAI path it stays in the body."""
    gateway, math, code = await teachers(lab)
    body = b'{"model":"code","route_key":"openai/gsm8k","rid":"r-1"}'
    assert (await gateway.post("/teacher/generate", body)).status == 200
    assert (await gateway.post("/teacher/v1/chat/completions", body)).status == 200
    assert [record.body for record in code.requests] == [b'{"rid":"r-1"}', b'{"model":"code","rid":"r-1"}']
    assert math.requests == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "nope", "route_key": "openai/gsm8k"}, "unknown_model"),
        ({"route_key": "nope"}, "unknown_route_key"),
        ({"route_key": ""}, "invalid_route_key"),
        ({"route_key": None}, "invalid_route_key"),
        ({"model": "math", "route_key": 7}, "invalid_route_key"),
        ({"model": ["math"]}, "invalid_model"),
        ({}, "model_required"),
    ],
)
async def test_what_names_no_model_is_400(lab: Lab, body: dict[str, Any], code: str) -> None:
    """Nothing falls through, the message lists what is known, and no engine hears of it."""
    gateway, *engines = await teachers(lab)
    for path in ("/teacher/generate", "/teacher/v1/score"):
        refused = error(await gateway.post(path, json.dumps(body).encode()), 400, code, openai="v1" in path)
        known = "openai/gsm8k" if "route_key" in code else "math"
        assert known in refused["message"]
    assert all(engine.requests == [] for engine in engines)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_openai_endpoints_pass_through(lab: Lab, endpoint: str) -> None:
    """The engine gets the body on its own path, with an id where it takes one; errors have OpenAI's form."""
    engine = await lab.engine(one(b'{"ok":1}'))
    gateway = await lab.gateway(engine)
    for path in (f"/v1/{endpoint}", f"/rollout/v1/{endpoint}?a=b"):
        answer = await gateway.post(path, b'{"input":"x","model":"tiny"}')
        assert (answer.status, answer.body) == (200, b'{"ok":1}')
    lines = [record.head.start_line for record in engine.requests]
    assert lines == [f"POST /v1/{endpoint} HTTP/1.1", f"POST /v1/{endpoint}?a=b HTTP/1.1"]
    received = [record.json() for record in engine.requests]
    assert [("rid" in body) for body in received] == [endpoint not in WITHOUT_ID] * 2
    assert all((body["input"], body["model"]) == ("x", "tiny") for body in received)
    error(await gateway.post(f"/v1/{endpoint}", b'{"model":"nope"}'), 400, "unknown_model", openai=True)


async def test_b65_the_numbers_of_a_prompt_are_not_looked_at(lab: Lab) -> None:
    """Four megabytes of token ids pass as they are, also when they are no numbers: that is the engine's to say."""
    engine = await lab.engine(one(b"{}"))
    gateway = await lab.gateway(engine)
    numbers = b",".join(b"%d" % (number % 150_000) for number in range(700_000))
    for body in (b'{"rid":"r-1","input_ids":[' + numbers + b"]}", b'{"rid":"r-1","input_ids":[01,,x]}'):
        assert (await gateway.post("/generate", body)).status == 200
        assert engine.requests[-1].body == body


async def test_a_batch_keeps_its_ids(lab: Lab) -> None:
    """``rid`` lists are the client's."""
    engine = await lab.engine(one(b"[]"))
    gateway = await lab.gateway(engine)
    body = b'{"text":["a","b"],"rid":["r-a","r-b"],"model":"tiny"}'
    assert (await gateway.post("/generate", body)).status == 200
    assert engine.requests[0].body == b'{"text":["a","b"],"rid":["r-a","r-b"]}'


async def test_b38_the_session_comes_from_the_first_header_there_is(lab: Lab) -> None:
    """B38: three headers name a session; the answer echoes the one that counted and the engine that runs it."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    headers = [("x-smg-routing-key", "smg"), ("x-session-id", "id"), ("x-trimtab-session", "own")]
    for present, session in ((headers, "own"), (headers[:2], "id"), (headers[:1], "smg")):
        answer = await gateway.post("/generate", b"{}", present)
        assert (answer.status, answer.head.get("x-trimtab-session")) == (200, session)
        assert answer.head.get("x-trimtab-backend") == engine.authority
    # The other routers' names are also for whoever comes behind us.
    assert engine.requests[0].head.get("x-smg-routing-key") == "smg"
    assert gateway.pool.statistics().sessions == 3


async def test_b38_8_sessions_of_30_turns_have_one_engine_each(lab: Lab) -> None:
    """B38: every turn of a session is on its engine, by the header of sglang's router."""
    engines = await lab.engines(4, one())
    gateway = await lab.gateway(*engines)
    homes: dict[int, set[str | None]] = {}
    for _ in range(30):
        for session in range(8):
            answer = await gateway.post("/generate", b"{}", [("X-SMG-Routing-Key", f"s{session}")])
            homes.setdefault(session, set()).add(answer.head.get("x-trimtab-backend"))
    assert all(len(home) == 1 for home in homes.values())
    assert [len(engine.requests) for engine in engines] == [60] * 4


async def test_session_fields_of_the_body(lab: Lab) -> None:
    """Where the role says so, a body may name the session; a header wins, ``null`` names none, the engine sees it."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, role_options={"session_fields": ["session_id", "user"]})
    for body, headers, session in (
        ({"user": "u"}, [], "u"),
        ({"user": "u", "session_id": "s\u00e9\u6f22"}, [], "s\u00e9\u6f22"),
        ({"user": "u", "session_id": None}, [], "u"),
        ({"user": "u"}, [("x-session-id", "h")], "h"),
        ({}, [], None),
    ):
        answer = await gateway.post("/generate", json.dumps(body).encode(), headers)
        echoed = answer.head.get("x-trimtab-session")
        assert (answer.status, echoed and echoed.encode("latin-1").decode()) == (200, session)
        assert body.items() <= engine.requests[-1].json().items()
    for bad in (7, "", "a\nb", "x" * 257):
        error(await gateway.post("/generate", json.dumps({"user": bad}).encode()), 400, "invalid_session")


async def test_bodies_name_no_session_by_default(lab: Lab) -> None:
    """``user`` is a field of OpenAI's like any other."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/v1/completions", b'{"user":7,"session_id":[]}')
    assert (answer.status, answer.head.get("x-trimtab-session")) == (200, None)


async def test_a_model_behind_a_router(lab: Lab) -> None:
    """The router gets the request under a lease, with the session in the words it knows."""
    router = await lab.engine(one())
    url = f"http://{router.authority}"
    gateway = await lab.gateway(router, role_options={"router_urls": {"tiny": url}})
    answer = await gateway.post("/generate", b"{}", [("x-trimtab-session", "s1")])
    assert (answer.status, answer.head.get("x-trimtab-backend")) == (200, router.authority)
    assert router.requests[0].head.get("x-smg-routing-key") == "s1"
    await gateway.post("/generate", b"{}", [("x-trimtab-session", "s1"), ("x-smg-routing-key", "own")])
    assert router.requests[1].head.get("x-smg-routing-key") == "own"
    assert gateway.outcomes() == {"completed": 2}


async def test_a_client_cannot_name_away_the_session_of_a_router(lab: Lab) -> None:
    """``Connection`` takes away the client's own key only; the router still learns whose turn it is."""
    router = await lab.engine(one())
    gateway = await lab.gateway(router, role_options={"router_urls": {"tiny": f"http://{router.authority}"}})
    named = [("Connection", "x-smg-routing-key"), ("x-smg-routing-key", "own"), ("x-trimtab-session", "s1")]
    assert (await gateway.post("/generate", b"{}", named)).status == 200
    assert router.requests[0].head.get("x-smg-routing-key") == "s1"
