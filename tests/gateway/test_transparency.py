"""B16: bytes in, bytes out. The engine gets the client's bytes plus at most one id, the client the engine's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.expect import spliced_rid
from tests.support.scripts import echo, one

if TYPE_CHECKING:
    from tests.support.http1 import Header
    from tests.support.lab import Lab

space = st.text(" \t\r\n", max_size=3)
number = st.sampled_from(
    [
        "0",
        "-0",
        "1e-7",
        "1E+400",
        "-1.50e00",
        "9007199254740993",
        "18446744073709551615",
        "0.1000000000000000055",
        "1e-400",
    ]
) | st.integers(-(2**70), 2**70).map(str)
text = (
    st.text(st.characters(exclude_characters='"\\', exclude_categories=("Cs", "Cc")), max_size=8)
    | st.sampled_from([r"\u00e9", r"\ud83d\ude00", r"\ud800", r"\/", r"\\", r"\"", "é", "日本", "\u2028", r"\u0000"])
).map(lambda inner: f'"{inner}"')
key = text | st.sampled_from(
    ['"rid "', '"Rid"', '"rids"', '"modelx"', '"stream"', '"text"', '"text"', '""', '"meta.rid"']
)
scalar = number | text | st.sampled_from(["true", "false", "null"])


def joined(opening: str, closing: str, items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A JSON container as text, with whitespace in every legal place."""
    spaced = st.tuples(space, items, space).map("".join)
    return st.tuples(st.lists(spaced, max_size=4).map(",".join), space).map(
        lambda parts: f"{opening}{parts[0] or parts[1]}{closing}"
    )


def member(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """``key : value`` as text."""
    return st.tuples(key, space, space, value).map(lambda m: f"{m[0]}{m[1]}:{m[2]}{m[3]}")


nested = st.recursive(scalar, lambda inner: joined("[", "]", inner) | joined("{", "}", member(inner)), max_leaves=12)
document = st.tuples(space, joined("{", "}", member(nested)), space).map(lambda parts: "".join(parts).encode())

one_gateway_for_all = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
"""The examples of one run share a gateway on purpose: they would otherwise test its start, not its bytes."""


@one_gateway_for_all
@given(body=document, path=st.sampled_from(["/generate", "/rollout/v1/chat/completions", "/v1/completions"]))
async def test_b16_request_bytes_arrive_unchanged_apart_from_one_rid(lab: Lab, body: bytes, path: str) -> None:
    """Random JSON text: number text, escapes, key order, duplicate-looking keys and whitespace all survive."""
    engine, client = await lab.shared_gateway(echo())
    answer = await client(path, body)
    assert answer.status == 200, answer.body
    spliced_rid(body, engine.requests[-1].body)
    assert answer.body == engine.requests[-1].body


@pytest.mark.parametrize(
    "body",
    [
        b'{"rid":"mine","text":"a"}',
        b'{"text":"a" , "rid" : "mine" }',
        rb'{"r\u0069d":"mine"}',
        b'{"rid":["a","b"],"text":["x","y"]}',
        b'{"rid":"first","x":{"rid":"inner"},"rid":"last"}',
    ],
)
async def test_b16_a_body_with_a_rid_is_not_touched(lab: Lab, body: bytes) -> None:
    """A client that names its request keeps its name, however the key is written."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate", body)).body == body
    assert engine.requests[0].body == body


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b" \r\n\t{ \t}\n",
        b'{"x":{"rid":"inner"}}',
        b'{"x":"\\"rid\\":1"}',
        b'{"Rid":"no"}',
        b'{"x":[{"rid":"a"}]}',
    ],
)
async def test_b16_a_rid_is_spliced_only_where_the_top_level_has_none(lab: Lab, body: bytes) -> None:
    """Keys that only look like a request id, or stand deeper, do not count."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate", body)).status == 200
    rid = spliced_rid(body, engine.requests[0].body)
    assert json.loads(engine.requests[0].body or b"")["rid"] == rid


async def test_b16_a_null_rid_is_replaced_where_it_stands(lab: Lab) -> None:
    """For SGLang null means absent, and the last of two equal keys wins: the id goes exactly there."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate", b'{"text":"a", "rid" : null ,"x":1}')
    (record,) = engine.requests
    assert record.body == b'{"text":"a", "rid" : "%s" ,"x":1}' % record.rid.encode()
    assert re.fullmatch("[0-9a-f]{32}", record.rid)


async def test_b16_ids_are_of_equal_length_and_differ(lab: Lab) -> None:
    """SGLang aborts by prefix: no id may be the prefix of another."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    for _ in range(20):
        await gateway.post("/generate", b'{"text":"a"}')
    rids = {record.rid for record in engine.requests}
    assert len(rids) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", rid) for rid in rids)


token = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12).map(lambda name: f"x-{name}")
value = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
IGNORED = {"content-length", "content-type", "date", "host", "transfer-encoding", "connection"}


def kept(headers: tuple[Header, ...] | list[Header]) -> list[Header]:
    """Headers that must survive, in a comparable form."""
    mine = [(name.lower(), content) for name, content in headers]
    return sorted(pair for pair in mine if pair[0] not in IGNORED and not pair[0].startswith("x-trimtab-"))


@one_gateway_for_all
@given(
    body=st.binary(min_size=1, max_size=200),
    status=st.sampled_from([200, 201, 400, 404, 418, 429]),
    headers=st.lists(st.tuples(token, value), max_size=5).filter(
        lambda pairs: not any(name.startswith("x-trimtab") for name, _ in pairs)
    ),
)
async def test_b16_response_bytes_status_and_headers_arrive_unchanged(
    lab: Lab, body: bytes, status: int, headers: list[Header]
) -> None:
    """Random bytes under random headers: the gateway interprets neither."""
    engine, client = await lab.shared_gateway(echo())
    engine.script = one(body, status=status, headers=[("Content-Type", "application/x-any"), *headers])
    answer = await client("/generate", b'{"rid":"r"}')
    assert (answer.status, answer.body) == (status, body)
    assert answer.head.get("content-type") == "application/x-any"
    assert kept(answer.head.headers) == kept(headers)


@one_gateway_for_all
@given(headers=st.lists(st.tuples(token, value), max_size=5))
async def test_b16_request_headers_arrive_unchanged(lab: Lab, headers: list[Header]) -> None:
    """Random end-to-end headers reach the engine, duplicates included; the gateway adds its name to the hops."""
    engine, client = await lab.shared_gateway(echo())
    headers = [pair for pair in headers if not pair[0].startswith(("x-trimtab", "x-session"))]
    await client("/generate", b'{"rid":"r"}', headers)
    own = ("via", engine.requests[-1].head.all("via")[-1])
    assert own[1].startswith("1.1 trimtab-")
    assert kept(engine.requests[-1].head.headers) == kept([*headers, own])


@pytest.mark.parametrize("query", ["", "?a=1&b=%20%C3%A9", "?", "?x=a/b?c"])
async def test_b16_the_query_string_is_kept(lab: Lab, query: str) -> None:
    """The prefix is cut, the query is not touched."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    assert (await gateway.post(f"/rollout/generate{query}")).status == 200
    assert engine.requests[0].head.target == f"/generate{query}"
