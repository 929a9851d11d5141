"""An engine that wants a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.conftest import API_KEY

if TYPE_CHECKING:
    from tests.contract.target import Target

OPEN = ("/health", "/health_generate", "/ready", "/metrics")
CLOSED = (("GET", "/model_info"), ("POST", "/generate"), ("POST", "/abort_request"), ("GET", "/v1/models"))


async def test_who_needs_a_key(locked_engine: Target) -> None:
    """Everything but health, readiness and metrics; the scheme must be ``Bearer``."""
    for path in OPEN:
        assert (await locked_engine.get(path)).status == 200
    for method, path in CLOSED:
        for headers in ({}, {"authorization": API_KEY}, {"authorization": "Bearer other"}):
            answer = await locked_engine.call(method, path, headers=headers)
            assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
    allowed = {"authorization": f"Bearer {API_KEY}"}
    assert (await locked_engine.call("GET", "/model_info", headers=allowed)).status == 200
    body = {"text": "a", "sampling_params": {"max_new_tokens": 1}}
    assert (await locked_engine.call("POST", "/generate", body, headers=allowed)).status == 200
