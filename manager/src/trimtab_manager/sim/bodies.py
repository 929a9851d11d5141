"""What every handler needs: the engine of the application, bodies in, JSON out, and the errors of FastAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from trimtab_manager.sim.engine import SimEngine

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINE = web.AppKey("engine", SimEngine)
JSON = "application/json"


class BodyError(Exception):
    """The body is not what the endpoint takes. SGLang answers 400 with one entry per violated rule."""

    def __init__(self, kind: str, location: tuple[str | int, ...], message: str, given: object = None) -> None:
        detail = {"type": kind, "loc": location, "msg": message, "input": given}
        super().__init__(f"1 validation error:\n  {detail}")


def engine_of(request: web.Request) -> SimEngine:
    """The engine behind this application."""
    return request.app[ENGINE]


def json_response(content: object, status: int = 200) -> web.Response:
    """A JSON answer in SGLang's compact form."""
    return web.Response(body=orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS), status=status, content_type=JSON)


async def read_object(request: web.Request) -> dict[str, Any]:
    """The JSON object of the body. Raises ``BodyError`` for anything else, an absent body among it."""
    raw = await request.read()
    if not raw:
        raise BodyError("missing", ("body",), "Field required")
    if request.content_type != JSON:
        raise BodyError("dataclass_type", ("body",), "Input should be a dictionary", raw[:100])
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BodyError("json_invalid", ("body", error.pos), f"JSON decode error: {error.msg}", {}) from error
    if not isinstance(body, dict):
        raise BodyError("dataclass_type", ("body",), "Input should be a dictionary", body)
    return body


class Field:
    """One type rule for a field of a body; ``null`` and absence pass unless it is required."""

    def __init__(self, accepts: Callable[[Any], bool], description: str, *, required: bool = False) -> None:
        self._accepts = accepts
        self._description = description
        self._required = required

    def check(self, body: dict[str, Any], name: str) -> None:
        """Raises ``BodyError`` when the field breaks the rule."""
        if name not in body and self._required:
            raise BodyError("missing", ("body", name), "Field required", body)
        value = body.get(name)
        if value is None:
            if self._required and name in body:
                raise BodyError("type", ("body", name), f"Input should be {self._description}", value)
            return
        if not self._accepts(value):
            raise BodyError("type", ("body", name), f"Input should be {self._description}", value)


def is_string(value: object) -> bool:
    """A string."""
    return isinstance(value, str)


def is_boolean(value: object) -> bool:
    """A boolean."""
    return isinstance(value, bool)


def is_integer(value: object) -> bool:
    """A whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """A number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_object(value: object) -> bool:
    """A JSON object."""
    return isinstance(value, dict)


def is_list_of(accepts: Callable[[object], bool]) -> Callable[[object], bool]:
    """A rule for lists whose items all pass ``accepts``."""
    return lambda value: isinstance(value, list) and all(map(accepts, value))


def any_of(*rules: Callable[[object], bool]) -> Callable[[object], bool]:
    """A rule that passes what any of the rules passes."""
    return lambda value: any(rule(value) for rule in rules)
