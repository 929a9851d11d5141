"""Error answers of the control app: JSON, a code, what exists instead, and never a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer, make_mocked_request

from tests.gateway.control.conftest import one_role, two_roles
from tests.support.client import RawClient
from trimtab._core import AddressRules
from trimtab_gateway.control import create_app
from trimtab_gateway.control.errors import error_middleware
from trimtab_gateway.control.workers import Workers
from trimtab_gateway.publisher import Publisher, Watch
from trimtab_gateway.snapshot import Fleet, ServedRole

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Start

ENDPOINT_OF_UNKNOWN_ROLE = [
    "generate",
    "v1/chat/completions",
    "chat/completions",
    "v1/completions",
    "abort_request",
    "health",
    "engines",
]


@pytest.mark.parametrize("endpoint", ENDPOINT_OF_UNKNOWN_ROLE)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_role_is_404_and_the_known_ones_are_listed(serve: Start, method: str, endpoint: str) -> None:
    """Whatever the method: the role is what is wrong."""
    served = await serve(two_roles())
    answer = await served.client.request(method, f"/rolout/{endpoint}", content=b"{}" if method == "POST" else None)
    assert (answer.status_code, answer.headers["x-trimtab-error"]) == (404, "unknown_role")
    error = answer.json()["error"]
    assert error["message"] == "unknown role 'rolout'; this gateway serves: rollout, genrm"
    assert error["retryable"] is False
    assert error["detail"]["roles"] == ["rollout", "genrm"]
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "path", ["/nothing", "/rollout", "/rollout/", "/rollout/nothing", "/v1", "/a/b/c", "/rollout//", "/%2e%2e"]
)
async def test_a_path_that_is_no_endpoint_is_404_and_lists_them(serve: Start, path: str) -> None:
    """It is never proxied to an engine."""
    served = await serve(one_role())
    error = (await served.json(path, 404))["error"]
    assert error["code"] == "not_found"
    assert "POST /rollout/generate" in error["detail"]["endpoints"]
    assert "GET /rollout/engines" in error["detail"]["endpoints"]


UNREADABLE = {
    b"FOO /status HTTP/1.1\r\nHost: a\r\n\r\n": (405, "method_not_allowed"),
    b"get /status HTTP/1.1\r\nHost: a\r\n\r\n": (405, "method_not_allowed"),
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n": (404, "not_found"),
    b"GET /r\xc3\xb4le/health HTTP/1.1\r\nHost: a\r\n\r\n": (404, "not_found"),
    b"GET /nothing HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": (404, "not_found"),
    b"GET /nothing HTTP/1.1\r\n\r\n": (404, "not_found"),
    b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}": (404, "not_found"),
}


@pytest.mark.parametrize(("request_bytes", "expected"), UNREADABLE.items(), ids=range(len(UNREADABLE)))
async def test_what_the_app_could_not_parse_is_answered_like_the_rest(
    serve: Start, caplog: pytest.LogCaptureFixture, request_bytes: bytes, expected: tuple[int, str]
) -> None:
    """The parser of aiohttp answers in plain text and writes a trace into the log."""
    served = await serve(one_role())
    url = served.client.base_url
    async with RawClient(url.host, url.port or 0) as client:
        await client.send(request_bytes)
        answer = await client.response()
    assert (answer.status, answer.json()["error"]["code"]) == expected
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_large_body_for_a_mistyped_path_still_gets_its_answer(serve: Start) -> None:
    """Closing on a client that is still sending would reset the connection and lose the 404."""
    served = await serve(one_role())
    body = b'{"text":"' + b"x" * 20_000_000 + b'"}'
    for method, path, status in (("POST", "/rolout/generate", 404), ("POST", "/nothing", 404), ("PUT", "/health", 405)):
        answer = await served.client.request(method, path, content=body)
        assert answer.status_code == status


async def test_with_several_roles_an_endpoint_needs_its_role(serve: Start) -> None:
    """Which role a request without one means would be a guess."""
    served = await serve(two_roles())
    for path in ("/health", "/engines", "/v1/models"):
        error = (await served.json(path, 404))["error"]
        assert error["code"] == "unknown_role"
        assert f"/rollout{path}" in error["message"]


@pytest.mark.parametrize(
    "path", ["/rollout/health", "/rollout/v1/models", "/rollout/engines", "/metrics", "/status", "/"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_wrong_method_is_405_and_names_the_right_ones(serve: Start, method: str, path: str) -> None:
    """As JSON, with the header that the standard asks for."""
    served = await serve(one_role())
    answer = await served.client.request(method, path, content=b"{}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    error = answer.json()["error"]
    assert error["code"] == answer.headers["x-trimtab-error"] == "method_not_allowed"
    assert method in error["message"]


async def test_openai_paths_answer_with_the_openai_error_object(serve: Start) -> None:
    """Clients of those paths read ``type`` and ``param``; others do not get them."""
    served = await serve(one_role())
    openai = (await served.json("/v1/nothing", 404))["error"]
    assert (openai["type"], openai["param"], openai["code"]) == ("invalid_request_error", None, "not_found")
    assert "type" not in (await served.json("/nothing", 404))["error"]


async def test_a_long_path_is_cut_in_the_message(serve: Start) -> None:
    """An answer does not grow with what was asked."""
    served = await serve(one_role())
    answer = await served.get("/" + "x" * 5000)
    assert answer.status_code == 404
    assert "x" * 201 not in answer.text


async def test_a_head_longer_than_the_default_of_aiohttp_is_answered(serve: Start) -> None:
    """The data plane lets it through, so the control app must not answer it with plain text."""
    served = await serve(one_role())
    answer = await served.client.get("/health", headers={"x-long": "x" * 16_000})
    assert answer.headers["content-type"] == "application/json"


async def test_a_failure_inside_is_500_json_and_its_cause_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The client sees a code, the log the traceback."""

    def broken() -> Any:
        raise ZeroDivisionError("the secret cause")

    nobody = Workers((), rules=AddressRules(), engine_key=None, engine_ca=None, is_own=lambda _: False)
    app = create_app(
        [ServedRole("rollout", {}, None)], broken, Watch(Publisher(lambda: Fleet(()))), nobody, lambda: None
    )
    async with TestServer(app) as server, ClientSession() as client:
        with caplog.at_level(logging.ERROR, logger="trimtab"):
            answer = await client.get(server.make_url("/rollout/v1/models"))
            text = await answer.text()
    assert answer.status == 500
    assert '"internal_error"' in text
    assert '"server_error"' in text
    assert "secret" not in text
    assert "Traceback" not in text
    assert "the secret cause" in caplog.text


async def test_a_client_that_leaves_inside_its_body_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The server ends such a connection by itself; there is nothing to log and nobody to answer."""

    async def handler(_request: web.Request) -> web.StreamResponse:
        raise ConnectionResetError("Connection lost")

    with caplog.at_level(logging.INFO, logger="trimtab"), pytest.raises(ConnectionResetError):
        await error_middleware(["rollout"])(make_mocked_request("POST", "/workers"), handler)
    assert caplog.text == ""
