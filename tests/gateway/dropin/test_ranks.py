"""An engine with data-parallel ranks is one worker at one URL; a rank is something that a request says."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.gateway.dropin.test_registration_checks import Register, by_lease_api, by_workers
from tests.support.scripts import one
from trimtab_gateway import EngineConfig

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet
    from tests.support.lab import Lab

RANKS = range(4)


async def test_b75_a_rank_travels_in_the_request(fleet: Fleet, lab: Lab) -> None:
    """B75: by body or by header; every call goes to the base URL, and the listed URL is one for a direct client."""
    engine = await lab.engine(one())
    served = await fleet.gateway()
    worker_id = await served.register(engine.url)
    await served.eligible(1)
    for rank in RANKS:
        headers = {"x-data-parallel-rank": str(rank)}
        answer = await served.client.post("/generate", json={"text": "a", "routed_dp_rank": rank}, headers=headers)
        assert (answer.status_code, answer.headers["x-trimtab-backend"]) == (200, engine.authority)
    assert [record.head.target for record in engine.requests] == ["/generate"] * len(RANKS)
    assert {record.head.get("host") for record in engine.requests} == {engine.authority}
    assert [record.json()["routed_dp_rank"] for record in engine.requests] == list(RANKS)
    assert [record.head.get("x-data-parallel-rank") for record in engine.requests] == [str(rank) for rank in RANKS]

    (worker,) = await served.workers()
    assert str(uuid.UUID(worker["id"])) == worker_id
    async with httpx.AsyncClient(base_url=worker["url"], trust_env=False) as direct:
        assert (await direct.post("/generate", json={"text": "a"})).status_code == 200


@pytest.mark.parametrize(("register", "status"), [(by_workers, 400), (by_lease_api, 422)])
async def test_b75_a_url_with_a_rank_is_refused(fleet: Fleet, register: Register, status: int) -> None:
    """B75: ``host:port@3`` would be user, password and host to every URL library: it is no address, by no way in."""
    served = await fleet.gateway(admin_key="secret")
    answer = await register(served.client, "http://127.0.0.1:30000@3")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, "invalid_address")
    assert await served.workers() == []
    with pytest.raises(ValueError, match="user information is not allowed"):
        EngineConfig("http://127.0.0.1:30000@3")
