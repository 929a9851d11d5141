"""``/openapi.json``: what is served, as far as a capability probe reads it."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from trimtab_manager.sim.bodies import json_response
from trimtab_manager.sim.control import PAUSE_MODES
from trimtab_manager.sim.middleware import OWN_PATHS

_PATTERN = re.compile(r"\{(\w+):[^}]*\}")
"""aiohttp's ``{name:pattern}``, which OpenAPI writes as ``{name}``."""

_SCHEMAS = {
    "PauseGenerationReqInput": {
        "properties": {"mode": {"type": "string", "enum": list(PAUSE_MODES), "title": "Mode", "default": "abort"}},
        "type": "object",
    }
}


async def handle_openapi(request: web.Request) -> web.Response:
    """GET ``/openapi.json``: paths with their methods; the simulated engine's own are left out."""
    paths: dict[str, dict[str, Any]] = {}
    for route in request.app.router.routes():
        resource = route.resource
        if resource is None or resource.canonical.startswith(OWN_PATHS):
            continue
        methods = paths.setdefault(_PATTERN.sub(r"{\1}", resource.canonical), {})
        methods[route.method.lower()] = {"responses": {"200": {"description": "Successful Response"}}}
    document = {"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": paths}
    return json_response({**document, "components": {"schemas": _SCHEMAS}})
