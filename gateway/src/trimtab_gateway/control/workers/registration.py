"""What a launcher says about its engine: the body of ``POST /workers``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from trimtab_gateway.control.workers.refusal import Refusal

DEFAULT_PRIORITY = 50
DEFAULT_COST = 1.0
_NOT_REGULAR = (
    "worker_type {!r} is refused: this gateway sends requests straight to engines, and neither half of a "
    "prefill/decode pair can serve one alone; register the pair with an sglang-router, and name that one as router_url "
    "of the model"
)


@dataclass(frozen=True)
class Registration:
    """One engine as its launcher describes it.

    Attributes:
        url: As written; clients look for exactly this text in ``GET /workers``.
        model_id: The model it serves; None: there is only one.
        capacity: Relative capacity; None: the one it has, or 1.
        priority: Given back, and used for nothing (as in sglang-router).
        cost: The same.
        labels: The same.
    """

    url: str
    model_id: str | None = None
    capacity: float | None = None
    priority: float = DEFAULT_PRIORITY
    cost: float = DEFAULT_COST
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_registration(body: Any, *, engine_key: str | None) -> Registration:
    """Read a body; members of other routers that mean nothing here are ignored.

    Raises:
        Refusal: A member is missing or of the wrong type (422), or asks for what is not done here (400).
    """
    if not isinstance(body, dict):
        raise _malformed('the body must be a JSON object such as {"url": "http://10.0.0.1:30000"}')
    url = body.get("url")
    if not isinstance(url, str) or not url:
        raise _malformed('"url" is missing: give the address of the engine, such as "http://10.0.0.1:30000"')
    worker_type = body.get("worker_type") or "regular"
    if worker_type != "regular":
        raise Refusal("unsupported_worker", _NOT_REGULAR.format(worker_type))
    if body.get("api_key") not in (None, "", engine_key):
        message = "a key per worker is not supported: all engines have the one of the configuration (engine_key_file)"
        raise Refusal("unsupported_worker", message)
    labels = body.get("labels")
    labels = {} if labels is None else labels
    if not isinstance(labels, dict):
        raise _malformed('"labels" must be an object')
    model_id = body.get("model_id")
    if model_id is not None and not isinstance(model_id, str):
        raise _malformed('"model_id" must be a string')
    return Registration(
        url=url,
        model_id=model_id or None,
        capacity=_capacity(body, labels),
        priority=_number(body, "priority", DEFAULT_PRIORITY),
        cost=_number(body, "cost", DEFAULT_COST),
        labels={str(key): str(value) for key, value in labels.items()},
    )


def _capacity(body: Mapping[str, Any], labels: Mapping[str, Any]) -> float | None:
    given = body.get("capacity", labels.get("capacity"))
    if given is None:
        return None
    try:
        # The value of a label is text.
        return float(given) if isinstance(given, str) else _number({"capacity": given}, "capacity", 1.0)
    except ValueError:
        raise _malformed(f'"capacity" is {given!r}: it must be a positive number') from None


def _number(body: Mapping[str, Any], key: str, default: float) -> float:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _malformed(f'"{key}" must be a number')
    return value


def _malformed(message: str) -> Refusal:
    return Refusal("invalid_request", message, HTTPStatus.UNPROCESSABLE_ENTITY)
