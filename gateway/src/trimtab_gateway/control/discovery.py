"""``GET /<role>/engines``: the discovery document over HTTP.

Whoever keeps a copy asks with ``If-None-Match`` (304 while it is the newest one), and with ``?wait_seq=`` to be
answered when it no longer is. Every answer is one snapshot, whole; no engine is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from trimtab_gateway.control.context import WATCH
from trimtab_gateway.control.errors import error_response
from trimtab_gateway.discovery import only_model

if TYPE_CHECKING:
    from trimtab_gateway.snapshot import RoleSnapshot, Snapshot

MAX_WAIT_MS = 30_000
_MAX_SEQ = 2**63 - 1


async def engines(request: web.Request, role: str) -> web.StreamResponse:
    """The document of one role; with ``wait_seq``, once its ``snapshot_seq`` is another one."""
    try:
        known = _number(request, "wait_seq", _MAX_SEQ)
        wait_ms = _number(request, "wait_ms", MAX_WAIT_MS)
    except ValueError as error:
        return error_response(request, 400, "invalid_request", str(error))
    wait_s = 0.0 if known is None else (MAX_WAIT_MS if wait_ms is None else wait_ms) / 1000

    def is_news(snapshot: Snapshot) -> bool:
        # A copy of another gateway process is old whatever its number.
        here = snapshot.roles[role]
        return here.snapshot_seq != known or not _has(request, here, if_unknown=True)

    served = (await request.app[WATCH].changed(is_news, wait_s)).roles[role]
    headers = {"ETag": f'"{_tag(served)}"', "Cache-Control": "no-cache"}
    if _has(request, served, if_unknown=False):
        return web.Response(status=304, headers=headers)
    name = request.query.get("model_name")
    body = served.body if name is None else orjson.dumps(only_model(served.document, name))
    return web.Response(body=body, content_type="application/json", headers=headers)


def _number(request: web.Request, key: str, highest: int) -> int | None:
    text = request.query.get(key)
    if text is None:
        return None
    # Not int() alone, which takes "+1", "1_0" and digits of other scripts.
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(highest)) or int(text) > highest:
        raise ValueError(f"{key} must be a whole number from 0 to {highest}")
    return int(text)


def _tag(role: RoleSnapshot) -> str:
    return f"{role.epoch}.{role.snapshot_seq}"


def _has(request: web.Request, role: RoleSnapshot, *, if_unknown: bool) -> bool:
    """Whether the caller has this document; ``if_unknown`` when it does not say what it has."""
    tags = request.if_none_match
    if not tags:
        return if_unknown
    return any(tag.value in ("*", _tag(role)) for tag in tags)
