"""Who may call an admin endpoint of the control app.

The listener checks the keys (and strips them): a request arrives with ``x-trimtab-access``, which no client can set. Its
value is ``admin``, or says why the caller is none. Whoever reaches a handler at all is a client.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

ACCESS_HEADER = "x-trimtab-access"

_UNAUTHENTICATED = (
    HTTPStatus.UNAUTHORIZED,
    "unauthenticated",
    "the admin key is missing: send Authorization: Bearer <admin key>",
)
_FORBIDDEN = {
    "wrong-key": "this is not the admin key",
    "closed": "this endpoint is closed: no admin_key is configured, and the gateway listens beyond loopback",
    "foreign-origin": "a page of another site may not call this endpoint (Origin); configure an admin_key to allow its "
    "own tools",
}


class AccessDenied(Exception):
    """The caller of an admin endpoint is no admin.

    Attributes:
        status: 401 when no key was shown, 403 when what was shown does not open this door.
        code: ``unauthenticated`` or ``forbidden``.
    """

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def require_admin(request: web.Request) -> None:
    """Return when the caller is an admin; first line of every handler that changes something.

    Without an ``admin_key`` an admin is whoever reaches a loopback listener, but for pages of other sites.

    Raises:
        AccessDenied: It is none; the error middleware turns this into the answer.
    """
    verdict = request.headers.get(ACCESS_HEADER, "no-key")
    if verdict == "admin":
        return
    if verdict in _FORBIDDEN:
        raise AccessDenied(HTTPStatus.FORBIDDEN, "forbidden", _FORBIDDEN[verdict])
    raise AccessDenied(*_UNAUTHENTICATED)
