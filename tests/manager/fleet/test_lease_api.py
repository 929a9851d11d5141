"""The lease API of a managed pool: direct clients are served, and what the manager alone may do is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.managed import Served, serving
from trimtab import Managed, RouterAdmin, RouterClient
from trimtab_gateway import Gateway, GatewayConfig, ModelConfig, RoleConfig

POOL = "/v1/router/pools/rollout/policy"
UPDATE = ("trimtab update", "POST /rollout/update_weights/from_disk", "POST /rollout/sleep")
# Method, path, body, and what the refusal names.
REFUSED = [
    (
        "POST",
        "/backends",
        {"backends": [{"address": "127.0.0.1:9", "capacity": 1}]},
        ("POST /rollout/workers", "scale"),
    ),
    ("DELETE", "/backends/policy%2F0", None, ("DELETE /rollout/workers/<id>", "trimtab scale")),
    ("POST", "/updates", {"update_id": "u", "to_version": 2}, UPDATE),
    ("POST", "/updates", {"update_id": "u", "kind": "offload"}, UPDATE),
    ("POST", "/updates/u/drain", {"timeout_ms": 0}, UPDATE),
    ("POST", "/updates/u/resume", {}, UPDATE),
    ("POST", "/updates/u/publish", {"version": 2}, UPDATE),
    ("POST", "/updates/u/fail", {"reason": "why"}, UPDATE),
    ("POST", "/updates/u/cancel", {}, UPDATE),
    ("POST", "/fail", {"reason": "why"}, ("POST /rollout/pause",)),
    ("POST", "/close", {}, ("POST /rollout/pause",)),
]


async def call(client: httpx.AsyncClient, method: str, path: str, body: object) -> httpx.Response:
    """One call on the pool."""
    return await client.request(method, POOL + path, json=body)


async def shown(served: Served) -> dict[str, Any]:
    """What a change by the lease API would change."""
    pool = (await served.client.get(POOL)).json()
    return {name: pool[name] for name in ("state", "version", "update", "failure", "pool_gen")} | {
        "backends": [(each["id"], each["draining"]) for each in pool["backends"]]
    }


async def test_what_the_manager_alone_may_do_is_refused() -> None:
    """With the way out; nothing changes, and an answer cannot be had by asking again."""
    async with serving() as served:
        before = await shown(served)
        for method, path, body, ways_out in REFUSED:
            answer = await call(served.client, method, path, body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["retryable"]) == (409, "managed", False), path
            assert "the engines of rollout/policy are run by a manager" in error["message"]
            assert all(way_out in error["message"] for way_out in ways_out), (path, error["message"])
            assert await shown(served) == before, path
        with RouterAdmin(served.url) as admin, pytest.raises(Managed, match="trimtab update"):
            await asyncio.to_thread(admin.begin_update, "u")


async def test_direct_clients_of_a_managed_pool_are_served() -> None:
    """Senders, owners, leases, sessions and fences are no affair of the manager."""
    async with serving() as served, RouterClient(served.url, sender="rollout/0", owner="train") as api:
        async with api.lease("traj-1") as lease:
            assert lease.url == served.launcher.handles["policy/0"].url
        assert await api.close_session("traj-1")
        with RouterAdmin(served.url) as admin:
            assert (await asyncio.to_thread(admin.fence, "train", "rest"))["fences"] == ["rest"]
            assert (await asyncio.to_thread(admin.unfence, "train", "rest"))["fences"] == []
        assert (await served.client.get("/v1/router/pools")).json()["pools"][0]["state"] == "serving"


async def test_the_manager_itself_is_not_refused() -> None:
    """It updates, sleeps, scales and ends the pools that the lease API leaves to it."""
    async with serving() as served:
        assert (await served.manager.update_from_disk("rollout", path="sim://weights/7", version=7)).ok
        assert (await served.manager.sleep("rollout")).ok
        assert (await served.manager.wake("rollout")).ok
        assert (await served.manager.scale("rollout", replicas=2)).ok
        assert (await shown(served))["backends"] == [("policy/0", False), ("policy/1", False)]


async def test_a_pool_that_the_manager_does_not_run_is_as_before() -> None:
    """A gateway may serve a role beside those of its manager: whoever drives that one still can."""
    async with serving() as served:
        roles = tuple(RoleConfig(name, (ModelConfig("policy"),)) for name in ("rollout", "judge"))
        async with Gateway(GatewayConfig(roles, port=0)) as gateway:
            gateway.manage(served.manager)
            with RouterAdmin(gateway.url, pool="judge/policy") as admin:
                backends = [{"id": "e0", "address": "127.0.0.1:9", "capacity": 1}]
                assert len(await asyncio.to_thread(admin.add_backends, backends)) == 1
                assert (await asyncio.to_thread(admin.begin_update, "u", to=1))["to_version"] == 1
                await asyncio.to_thread(admin.cancel_update, "u")
                await asyncio.to_thread(admin.remove_backend, "e0")
                await asyncio.to_thread(admin.close_pool)
            with RouterAdmin(gateway.url, pool="rollout/policy") as admin, pytest.raises(Managed):
                await asyncio.to_thread(admin.close_pool)
