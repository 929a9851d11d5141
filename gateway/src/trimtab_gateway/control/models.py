"""``GET /<role>/v1/models``: the names that requests may carry, as OpenAI clients list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_gateway.control.context import json_response, role_snapshot

if TYPE_CHECKING:
    from aiohttp import web


async def models(request: web.Request, role: str) -> web.Response:
    """Every model of the role, ready or not: a model that cannot serve now is still a model of the role."""
    names = [model.name for model in role_snapshot(request, role).models]
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "trimtab"} for name in names]
    return json_response({"object": "list", "data": data})
