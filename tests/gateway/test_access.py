"""Who may call what at the listener: client key, admin key, and what becomes of them on the way to an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import request_bytes
from tests.support.scripts import one

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.http1 import Header
    from tests.support.lab import Lab

CLIENT, ADMIN, ENGINE = "client-s3cret", "admin-s3cret", "engine-s3cret"


def bearer(key: str) -> list[Header]:
    """The usual way to show a key."""
    return [("Authorization", f"Bearer {key}")]


@pytest.mark.parametrize("path", ["/generate", "/rollout/v1/chat/completions", "/v1/completions"])
async def test_engine_endpoints_ask_for_the_client_key(lab: Lab, path: str) -> None:
    """Without it 401, with another one 403, and no engine sees such a request; the admin key opens as well."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, client_key=CLIENT, admin_key=ADMIN)
    missing = await gateway.post(path)
    assert missing.head.get("www-authenticate") == "Bearer"
    openai = not path.endswith("/generate")
    error(missing, 401, "unauthenticated", openai=openai)
    error(await gateway.post(path, b"{}", bearer(ENGINE)), 403, "forbidden", openai=openai)
    assert engine.requests == []
    for headers in (bearer(CLIENT), bearer(ADMIN), [("X-Api-Key", CLIENT)]):
        assert (await gateway.post(path, b"{}", headers)).status == 200
    assert len(engine.requests) == 3


@pytest.mark.parametrize("headers", [bearer(CLIENT), bearer(ADMIN), [("X-Api-Key", CLIENT)]])
async def test_b50_a_credential_of_the_gateway_stops_here(lab: Lab, headers: list[Header]) -> None:
    """The engine sees its own key and nothing else, also when the execution is aborted."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, client_key=CLIENT, admin_key=ADMIN, engine_key=ENGINE)
    assert (await gateway.post("/generate", b"{}", headers)).status == 200
    (record,) = engine.requests
    assert record.head.all("authorization") == [f"Bearer {ENGINE}"]
    assert record.head.get("x-api-key") is None


async def test_b50_an_admin_key_stops_here_without_a_client_key(lab: Lab) -> None:
    """A controller's client that sends its key everywhere does not give it away."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, admin_key=ADMIN)
    assert (await gateway.post("/generate", b"{}", bearer(ADMIN))).status == 200
    assert engine.requests[0].head.get("authorization") is None


async def test_b50_the_engines_own_credential_may_be_passed_through(lab: Lab) -> None:
    """Who shows the client key as ``X-Api-Key`` can speak to the engine with ``Authorization``."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, client_key=CLIENT, engine_key=ENGINE)
    headers = [*bearer("own"), ("X-Api-Key", CLIENT)]
    assert (await gateway.post("/generate", b"{}", headers)).status == 200
    assert engine.requests[0].head.get("authorization") == "Bearer own"


@pytest.mark.parametrize(
    ("headers", "admin_key", "verdict"),
    [
        (bearer(ADMIN), ADMIN, "admin"),
        (bearer("other"), ADMIN, "wrong-key"),
        ([], ADMIN, "no-key"),
        ([("X-Trimtab-Access", "admin")], ADMIN, "no-key"),
        ([], None, "admin"),
        ([("Origin", "http://evil.example")], None, "foreign-origin"),
    ],
)
async def test_the_control_app_learns_who_calls_and_no_key(
    lab: Lab, tmp_path: Path, headers: list[Header], admin_key: str | None, verdict: str
) -> None:
    """One word of the listener, which a client cannot say itself; credentials end there."""
    control = await lab.engine(one(), unix=tmp_path / "control.sock")
    gateway = await lab.gateway(control_socket=str(control.unix), admin_key=admin_key)
    assert (await gateway.get("/workers", headers)).status == 200
    (record,) = control.requests
    assert record.head.all("x-trimtab-access") == [verdict]
    assert record.head.get("authorization") is None


async def test_with_a_client_key_only_public_paths_are_open(lab: Lab, tmp_path: Path) -> None:
    """Liveness, readiness, health, the index and metrics ask for no key; the control app is not asked for the rest."""
    control = await lab.engine(one(), unix=tmp_path / "control.sock")
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, control_socket=str(control.unix), client_key=CLIENT)
    public = ["/", "/live", "/ready", "/health", "/rollout/health", "/metrics", "/openapi.json"]
    assert [(await gateway.get(path)).status for path in public] == [200] * len(public)
    seen = len(control.requests)
    for path in ("/status", "/rollout/engines", "/v1/models", "/workers", "/nothing"):
        error(await gateway.get(path), 401, "unauthenticated")
    assert len(control.requests) == seen
    assert (await gateway.get("/rollout/engines", bearer(CLIENT))).status == 200


async def test_metrics_can_ask_for_the_key(lab: Lab, tmp_path: Path) -> None:
    """``metrics_need_key`` closes them for scrapers without one."""
    control = await lab.engine(one(), unix=tmp_path / "control.sock")
    gateway = await lab.gateway(control_socket=str(control.unix), client_key=CLIENT, metrics_need_key=True)
    error(await gateway.get("/metrics"), 401, "unauthenticated")
    assert (await gateway.get("/metrics", bearer(CLIENT))).status == 200


async def test_b51_a_page_of_another_site_cannot_use_the_keyless_lease_api(lab: Lab) -> None:
    """A browser on this machine tells where a page comes from; a page of another site is refused."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    body = b'{"reason": "by a page"}'
    path = "/v1/router/pools/rollout/tiny/fail"
    await client.send(request_bytes(path, body, [("Origin", "http://evil.example")]))
    error(await client.response(), 403, "forbidden")
    assert gateway.pool.state == "serving"


async def test_a_refused_upload_gets_its_answer(lab: Lab) -> None:
    """A client that is still sending megabytes reads the 401, not a reset."""
    gateway = await lab.gateway(await lab.engine(one()), client_key=CLIENT)
    error(await gateway.post("/generate", b"x" * 8_000_000), 401, "unauthenticated")
