"""Why a call to the workers API is refused."""

from __future__ import annotations

from http import HTTPStatus


class Refusal(Exception):
    """A call that is answered with an error.

    Attributes:
        status: HTTP status.
        code: Machine-readable code.
    """

    def __init__(self, code: str, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
