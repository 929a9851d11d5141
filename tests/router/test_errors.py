"""The vocabulary of errors: one class per code, in process and over HTTP alike."""

from __future__ import annotations

import pytest

import trimtab
from trimtab import errors

# Code, whether asking again can help: design of the lease API, and the clients' own two.
VOCABULARY = {
    "invalid_request": False,
    "invalid_address": False,
    "invalid_capacity": False,
    "unauthenticated": False,
    "forbidden": False,
    "unknown_pool": False,
    "unknown_backend": False,
    "unknown_sender": False,
    "unknown_lease": False,
    "unknown_update": False,
    "idempotency_conflict": False,
    "request_settled": False,
    "stale_request": False,
    "outcome_conflict": False,
    "update_in_progress": True,
    "invalid_transition": False,
    "managed": False,
    "version_regression": False,
    "backend_busy": True,
    "session_closed": False,
    "router_restarted": False,
    "pool_failed": False,
    "poison_suspected": False,
    "pool_closed": False,
    "fenced": True,
    "version_not_acked": True,
    "no_eligible_backend": True,
    "not_serving": True,
    "too_many_tombstones": True,
    "too_many_waiters": True,
    "at_capacity": True,
    "starting": True,
    "drain_timeout": False,
    "router_unreachable": True,
    "start_failed": False,
}


@pytest.mark.parametrize(("code", "retryable"), VOCABULARY.items())
def test_every_code_has_its_class(code: str, retryable: bool) -> None:
    """The class is exported, carries the code, and says whether asking again can help."""
    error = errors.error_of(code, "why")
    name = type(error).__name__
    assert (type(error).code, error.retryable, str(error)) == (code, retryable, "why")
    assert name in errors.__all__
    assert getattr(trimtab, name) is type(error)


def test_an_answer_overrides_the_class() -> None:
    """What a router says about one refusal counts more than what is usual for its code."""
    error = errors.error_of("drain_timeout", "why", retryable=True, detail={"outstanding": 2})
    assert (error.retryable, error.detail) == (True, {"outstanding": 2})
    assert not errors.DrainTimeout("another").retryable


def test_an_unknown_code_is_kept() -> None:
    """A newer router may know more codes: the text keeps what it said."""
    error = errors.error_of("brand_new", "why", retryable=True)
    assert (type(error), str(error), error.retryable) == (errors.TrimtabError, "brand_new: why", True)
