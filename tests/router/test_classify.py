"""``classify``: what an exception of an HTTP client says about the execution."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import httpx
import pytest
import requests

from tests.support.ports import free_ports
from trimtab import classify

type_error = TypeError("a bug of the caller")


async def post_aiohttp(url: str) -> None:
    """One request as a caller with aiohttp writes it."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=0.2)
    async with (
        aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
        session.post(url, json={"text": "x"}) as reply,
    ):
        await reply.json()


async def post_httpx(url: str) -> None:
    """One request as a caller with httpx writes it."""
    async with httpx.AsyncClient(timeout=0.2) as client:
        (await client.post(url, json={"text": "x"})).raise_for_status().json()


async def post_requests(url: str) -> None:
    """One request as a caller with requests writes it."""

    def post() -> None:
        reply = requests.post(url, json={"text": "x"}, timeout=0.2)
        reply.raise_for_status()
        reply.json()

    await asyncio.to_thread(post)


async def post_urllib(url: str) -> None:
    """One request as a caller with the standard library writes it."""

    def post() -> None:
        request = urllib.request.Request(url, data=b"{}")
        try:
            with urllib.request.urlopen(request, timeout=0.2) as reply:
                json.loads(reply.read())
        except urllib.error.HTTPError as error:
            error.close()
            raise

    await asyncio.to_thread(post)


Post = Callable[[str], Awaitable[None]]
CLIENTS = pytest.mark.parametrize("post", [post_aiohttp, post_httpx, post_requests, post_urllib])


@asynccontextmanager
async def engine(answer: bytes | None) -> AsyncIterator[str]:
    """An engine that reads a request, writes ``answer`` and closes; ``None`` never answers."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await gone.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/generate"
        gone.set()


def reply(status: str, body: bytes = b"{}", length: int | None = None) -> bytes:
    """A raw answer; a ``length`` above the body's makes it end early."""
    length = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode() + body


async def outcome_of(post: Post, url: str) -> str:
    """How a request that raises is classified."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which class it is, is the client's business
        await post(url)
    return classify(caught.value)


@CLIENTS
async def test_refused_is_not_sent(post: Post) -> None:
    """Nobody listens: no byte of the request was written."""
    assert await outcome_of(post, f"http://127.0.0.1:{free_ports(1)[0]}/generate") == "not_sent"


@CLIENTS
async def test_unknown_host_is_not_sent(post: Post) -> None:
    """A name that does not resolve: no byte of the request was written."""
    assert await outcome_of(post, "http://no-such-engine.invalid:1/generate") == "not_sent"


@CLIENTS
async def test_4xx_is_rejected(post: Post) -> None:
    """The engine refused the request: final, and no failure of the engine."""
    async with engine(reply("400 Bad Request")) as url:
        assert await outcome_of(post, url) == "rejected"


@CLIENTS
async def test_5xx_is_failed(post: Post) -> None:
    """The engine answered 5xx: the execution is known to be over."""
    async with engine(reply("500 Internal Server Error")) as url:
        assert await outcome_of(post, url) == "failed"


@CLIENTS
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nConte",
        reply("200 OK", b'{"te', 100),
        reply("200 OK", b"not json"),
        b"SMTP ready\r\n\r\n",
    ],
    ids=["nothing", "half-a-head", "half-a-body", "undecodable", "foreign"],
)
async def test_a_broken_answer_is_ambiguous(post: Post, answer: bytes) -> None:
    """The request was written and no whole answer came: nobody knows whether it ran."""
    async with engine(answer) as url:
        assert await outcome_of(post, url) == "ambiguous"


@CLIENTS
async def test_a_silent_engine_is_ambiguous(post: Post) -> None:
    """The request was written and the answer is late: nobody knows whether it ran."""
    async with engine(None) as url:
        assert await outcome_of(post, url) == "ambiguous"


@pytest.mark.parametrize(
    ("exc", "outcome"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (ConnectionRefusedError(111, "refused"), "not_sent"),
        (socket.gaierror(-2, "unknown"), "not_sent"),
        (ConnectionResetError(), "ambiguous"),
        (BrokenPipeError(), "ambiguous"),
        (TimeoutError(), "ambiguous"),
        (asyncio.TimeoutError(), "ambiguous"),
        (OSError(), "ambiguous"),
        (type_error, "ambiguous"),
        (httpx.ConnectTimeout("slow"), "not_sent"),
        (httpx.PoolTimeout("no free connection"), "not_sent"),
        (httpx.WriteTimeout("slow"), "ambiguous"),
        (aiohttp.ConnectionTimeoutError(), "not_sent"),
        (aiohttp.ServerDisconnectedError(), "ambiguous"),
        (aiohttp.ClientPayloadError(), "ambiguous"),
        (requests.ConnectTimeout(), "not_sent"),
        (requests.exceptions.ChunkedEncodingError(), "ambiguous"),
        (urllib.error.URLError("no host given"), "ambiguous"),
    ],
    ids=repr,
)
def test_single_exceptions(exc: BaseException, outcome: str) -> None:
    """What cannot be told for sure is ambiguous; only exceptions of connecting are ``not_sent``."""
    assert classify(exc) == outcome


def test_a_stated_cause_is_followed() -> None:
    """A wrapper of the caller's own says what its cause says, however deep."""
    outer = RuntimeError("generation failed")
    outer.__cause__ = ValueError("attempt failed")
    outer.__cause__.__cause__ = httpx.ConnectError("refused")
    assert classify(outer) == "not_sent"


def test_an_exception_raised_beside_another_is_not_followed() -> None:
    """The exception of an earlier attempt must not turn "nobody knows" into "not sent"."""
    outer = ValueError("undecodable answer of the second attempt")
    outer.__context__ = httpx.ConnectError("refused at the first attempt")
    assert classify(outer) == "ambiguous"


def test_a_timeout_made_of_a_cancellation_is_ambiguous() -> None:
    """``asyncio.wait_for`` cancels the request inside: the caller did not go away, it ran out of time."""
    timeout = TimeoutError()
    timeout.__cause__ = asyncio.CancelledError()
    assert classify(timeout) == "ambiguous"


def test_a_cycle_of_causes_ends() -> None:
    """An exception may be its own cause's cause."""
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify(one) == "ambiguous"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
@pytest.mark.parametrize(
    ("members", "outcome"),
    [([httpx.ConnectError("a")], "not_sent"), ([httpx.ConnectError("a"), httpx.ReadError("b")], "ambiguous")],
)
def test_groups_must_agree(members: list[Exception], outcome: str) -> None:
    """A group has an outcome if all its members have it."""
    group: Callable[[str, list[Exception]], BaseException] = vars(__import__("builtins"))["ExceptionGroup"]
    assert classify(group("tasks", members)) == outcome


def test_classes_that_only_share_a_name_are_not_taken_for_others() -> None:
    """The module counts as much as the name."""
    own = type("ConnectError", (Exception,), {"__module__": "somebody.else"})
    assert classify(own()) == "ambiguous"


def test_importing_trimtab_imports_no_http_client() -> None:
    """A direct client pays for neither an HTTP client nor a server library at import."""
    heavy = ("aiohttp", "httpx", "requests", "urllib3", "anyio", "click", "rich", "torch", "numpy", "trimtab_gateway")
    script = f"import sys, trimtab; print([name for name in {heavy!r} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
