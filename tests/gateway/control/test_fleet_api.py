"""Fleet control over HTTP: what reaches the manager, and what its results look like."""

from __future__ import annotations

import httpx
import pytest

from tests.gateway.control.conftest import Start, one_role, two_roles
from tests.support.recorder import Recorder
from trimtab.errors import DrainTimeout, TrimtabError, UnknownModel, UpdateInProgress
from trimtab.fleet import EngineResult

FINE = EngineResult("policy/0", "ok", 0.5, state="ready")
BAD = EngineResult("policy/1", "timeout", 0.5, error="policy/1 did not answer within 5 s", state="dead")


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        ("/pause", None, ("pause", "rollout", None, {"mode": "abort"})),
        ("/pause", {"mode": "in_place", "model": "policy"}, ("pause", "rollout", "policy", {"mode": "in_place"})),
        ("/continue", {}, ("continue", "rollout", None, {})),
        ("/flush", {"model": None}, ("flush", "rollout", None, {})),
        ("/drain", {"engine": "policy/0"}, ("drain", "rollout", None, {"engine": "policy/0"})),
        ("/undrain", {}, ("undrain", "rollout", None, {"engine": None})),
        ("/sleep", {}, ("sleep", "rollout", None, {})),
        ("/wake", {"tags": ["weights"]}, ("wake", "rollout", None, {"tags": ("weights",)})),
        (
            "/update_weights/from_disk",
            {"path": "/w/7", "version": 7, "flush": "keep"},
            ("update_from_disk", "rollout", None, {"path": "/w/7", "version": 7, "flush": "keep"}),
        ),
    ],
)
async def test_a_call_reaches_the_manager(serve: Start, path: str, body: object, call: object) -> None:
    """With its arguments, and nothing that the caller did not say."""
    served = await serve(two_roles())
    manager = Recorder(FINE)
    served.gateway.manage(manager)
    answer = await served.client.post(f"/rollout{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert manager.calls == [call]
    assert answer.json()["engines"] == [
        {"engine": "policy/0", "status": "ok", "seconds": 0.5, "state": "ready", "error": None}
    ]
    assert answer.json()["weight_version"] == 7


@pytest.mark.parametrize(("rows", "status"), [((FINE, FINE), 200), ((FINE, BAD), 207), ((BAD,), 502), ((), 200)])
async def test_the_status_says_on_how_many_engines_it_worked(
    serve: Start, rows: tuple[EngineResult, ...], status: int
) -> None:
    """200 on all, 207 on some, 502 on none; the rows have what was wrong."""
    served = await serve(one_role())
    served.gateway.manage(Recorder(*rows))
    answer = await served.client.post("/rollout/pause")
    assert answer.status_code == status
    assert answer.json()["ok"] is (status == 200)
    errors = [row["error"] for row in answer.json()["engines"] if row["error"]]
    assert errors == [row.error for row in rows if row.error]


@pytest.mark.parametrize(
    ("error", "status"), [(UpdateInProgress("u-1"), 409), (UnknownModel("no"), 404), (DrainTimeout("late"), 504)]
)
async def test_what_fails_as_a_whole_is_a_typed_error(serve: Start, error: TrimtabError, status: int) -> None:
    """Its code, and whether asking again can help, are the manager's."""
    served = await serve(one_role())
    served.gateway.manage(Recorder(error=error))
    answer = await served.client.post("/rollout/sleep", json={})
    assert answer.status_code == status
    assert answer.headers["x-trimtab-error"] == error.code
    assert answer.json()["error"]["retryable"] is error.retryable
    assert answer.headers["x-should-retry"] == str(error.retryable).lower()


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/pause", {"mode": "gently"}, "abort, in_place, retract"),
        ("/pause", {"modes": "abort"}, "unknown member 'modes'"),
        ("/pause", [1], "must be a JSON object"),
        ("/wake", {"tags": []}, "weights, kv_cache, cuda_graph"),
        ("/wake", {"tags": "weights"}, "must be a list"),
        ("/drain", {"engine": ""}, "non-empty"),
        ("/update_weights/from_disk", {"path": "/w"}, "'version' is missing"),
        ("/update_weights/from_disk", {"path": "/w", "version": True}, "whole number"),
        ("/update_weights/from_disk", {"path": "/w", "version": None}, "whole number"),
        ("/update_weights/from_disk", {"path": "/w", "version": -1}, "whole number"),
    ],
)
async def test_a_bad_body_is_refused(serve: Start, path: str, body: object, says: str) -> None:
    """Before the manager is asked, and with what the call takes."""
    served = await serve(one_role())
    manager = Recorder(FINE)
    served.gateway.manage(manager)
    answer = await served.client.post(f"/rollout{path}", json=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]
    assert manager.calls == []


async def test_without_a_manager_nothing_is_promised(serve: Start) -> None:
    """The answer names the way out."""
    served = await serve(one_role())
    answer = await served.client.post("/rollout/pause")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "not_managed"
    assert "trimtab up" in answer.json()["error"]["message"]


async def test_only_an_admin_acts_on_engines(serve: Start) -> None:
    """The client key opens none of it."""
    served = await serve(one_role(admin_key="adm", client_key="cli"))
    manager = Recorder(FINE)
    served.gateway.manage(manager)

    async def status(**headers: str) -> int:
        async with httpx.AsyncClient(base_url=served.gateway.url, trust_env=False) as client:
            return (await client.post("/rollout/pause", headers=headers)).status_code

    assert await status() == 401
    assert await status(authorization="Bearer cli") == 403
    assert manager.calls == []
    assert await status(authorization="Bearer adm") == 200
