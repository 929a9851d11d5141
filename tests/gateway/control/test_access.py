"""Admin endpoints of the control app: what the listener's verdict means."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from trimtab_gateway.control.access import require_admin
from trimtab_gateway.control.errors import error_middleware


@pytest.mark.parametrize(
    ("verdict", "status", "code"),
    [
        ("admin", 200, None),
        ("no-key", 401, "unauthenticated"),
        (None, 401, "unauthenticated"),
        ("Admin", 401, "unauthenticated"),
        ("wrong-key", 403, "forbidden"),
        ("closed", 403, "forbidden"),
        ("foreign-origin", 403, "forbidden"),
    ],
)
async def test_only_an_admin_gets_through(verdict: str | None, status: int, code: str | None) -> None:
    """Anything but the one word is refused, with the way out; 401 asks for a bearer token."""

    async def handler(request: web.Request) -> web.Response:
        require_admin(request)
        return web.Response()

    app = web.Application(middlewares=[error_middleware(["rollout"])])
    app.router.add_post("/workers", handler)
    headers = {} if verdict is None else {"x-trimtab-access": verdict}
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/workers", headers=headers, data=b"x" * 100_000)
        assert answer.status == status
        assert answer.headers.get("x-trimtab-error") == code
        assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        if code is not None:
            assert (await answer.json())["error"]["message"]
