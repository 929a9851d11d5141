"""Expectations that many gateway tests share: the shape of an error, and the one documented change of a body."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.http1 import Response

SPLICE = re.compile(rb'"rid":"([0-9a-f]{32})"')


def error(response: Response, status: int, code: str, *, openai: bool = False) -> dict[str, Any]:
    """Check the whole contract of an error answer and return its ``error`` object.

    Args:
        response: What the client got.
        status: Expected status code.
        code: Expected ``error.code`` and ``x-trimtab-error``.
        openai: The path is an OpenAI one: ``type`` and ``param`` are there too.
    """
    assert (response.status, response.code) == (status, code), f"{response.status} {response.body!r}"
    assert (response.head.get("content-type") or "").startswith("application/json")
    found: dict[str, Any] = response.json()["error"]
    assert isinstance(found["message"], str)
    assert found["message"]
    assert isinstance(found["retryable"], bool)
    assert response.head.get("x-should-retry") == (None if found["retryable"] else "false")
    assert response.head.get("retry-after") == ("1" if status in {429, 503} else None)
    if openai:
        assert isinstance(found["type"], str)
        assert found["param"] is None
    else:
        assert "param" not in found
    return found


def error_event(data: bytes) -> dict[str, Any]:
    """The object of the error event that a broken event stream ends with."""
    assert data.endswith(b"\n\n"), data
    last = data[:-2].rpartition(b"\n\n")[2]
    assert last.startswith(b"data: "), last
    found: dict[str, Any] = json.loads(last[6:])["error"]
    return found


def spliced_rid(sent: bytes, received: bytes | None) -> str:
    """The id that the gateway spliced into ``sent`` to make ``received``; anything else that differs fails."""
    assert received is not None, "the engine has not read the body"
    opening = sent.index(b"{") + 1
    match = SPLICE.match(received, opening)
    assert match, f"no rid after the opening brace: {received[: opening + 60]!r}"
    comma = b"" if sent[opening:].lstrip(b" \t\r\n").startswith(b"}") else b","
    assert received == sent[:opening] + match.group(0) + comma + sent[opening:]
    return match.group(1).decode()
