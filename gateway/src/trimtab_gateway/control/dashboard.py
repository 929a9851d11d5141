"""``GET /ui``: the dashboard's files. They hold no fact of the fleet; their page asks ``/status`` for those."""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath

from aiohttp import web

_PAGE = "index.html"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    # Everything comes from here: it works without a network, and nothing foreign can run in it.
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_dashboard(app: web.Application) -> None:
    """Serve the page at ``/ui``, and below it what it loads."""
    served = {file.name: file.read_bytes() for file in files("trimtab_gateway.ui").iterdir() if _kind(file.name)}

    async def page(_request: web.Request) -> web.Response:
        return _answer(_PAGE, served[_PAGE])

    async def part(request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in served:
            raise web.HTTPNotFound
        return _answer(name, served[name])

    app.router.add_get("/ui", page)
    app.router.add_get("/ui/{file}", part)


def _answer(name: str, body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_kind(name), charset="utf-8", headers=_HEADERS)


def _kind(name: str) -> str:
    return _KINDS.get(PurePosixPath(name).suffix, "")
