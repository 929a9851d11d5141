"""Who may register what: the admin key, the addresses that no engine has, the allow-list (B51)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.support.scripts import one
from trimtab._core import AddressRules
from trimtab.errors import InvalidAddress
from trimtab_gateway.control.endpoints import WORKERS

if TYPE_CHECKING:
    import httpx

    from tests.gateway.dropin.conftest import Fleet
    from tests.support.lab import Lab

Register = Callable[["httpx.AsyncClient", str], Awaitable["httpx.Response"]]
REFUSED = (
    "http://169.254.169.254:80",
    "http://[::ffff:169.254.169.254]:80",
    "http://[fe80::1]:30000",
    "http://metadata.google.internal:80",
    "http://0.0.0.0:30000",
)


async def by_lease_api(client: httpx.AsyncClient, url: str) -> httpx.Response:
    """Register through the lease API."""
    body = {"backends": [{"address": url, "capacity": 1}]}
    return await client.post("/v1/router/pools/rollout/default/backends", json=body)


async def by_workers(client: httpx.AsyncClient, url: str) -> httpx.Response:
    """Register through the workers API."""
    return await client.post("/workers", json={"url": url})


async def test_b51_without_the_key_nothing_happens(fleet: Fleet, lab: Lab) -> None:
    """401 on every endpoint, 403 with another key; no connection is opened and nothing is registered."""
    engine = await lab.engine(one())
    served = await fleet.gateway(admin_key="secret")
    for method, path in WORKERS:
        for prefix in ("", "/rollout"):
            for key, status in ((None, 401), ("Bearer other", 403)):
                headers = {"Authorization": key} if key else {"Authorization": ""}
                target = prefix + path.replace("{worker}", "x")
                answer = await served.client.request(
                    method, target, json={"url": engine.url}, params={"url": engine.url}, headers=headers
                )
                assert answer.status_code == status, f"{method} {path} {key}: {answer.text}"
                assert "secret" not in answer.text
    assert engine.connections == []
    assert await served.workers() == []


@pytest.mark.parametrize(("register", "status"), [(by_workers, 400), (by_lease_api, 422)])
async def test_b51_addresses_that_no_engine_has(fleet: Fleet, register: Register, status: int) -> None:
    """Metadata services and link-local addresses are refused with the key, too, by either way in."""
    served = await fleet.gateway(admin_key="secret")
    for url in REFUSED:
        answer = await register(served.client, url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, "invalid_address"), url
    assert await served.workers() == []


@pytest.mark.parametrize("register", [by_workers, by_lease_api])
async def test_b51_the_allow_list(fleet: Fleet, register: Register) -> None:
    """With ``worker_allow`` nothing else gets in; engines of the configuration are the operator's own."""
    served = await fleet.gateway(worker_allow=("10.0.0.0/8", "*.cluster.local"))
    for url, taken in [
        ("http://10.1.2.3:30000", True),
        ("http://node-1.cluster.local:30000", True),
        ("http://127.0.0.1:30000", False),
        ("http://node-1:30000", False),
        ("http://169.254.169.254:80", False),
    ]:
        answer = await register(served.client, url)
        assert answer.is_success is taken, f"{url}: {answer.text}"
        assert taken or answer.json()["error"]["code"] == "invalid_address"


def test_the_rules_alone() -> None:
    """For programs that register engines of their own."""
    AddressRules().check("http://10.0.0.1:30000")
    for address in REFUSED:
        with pytest.raises(InvalidAddress):
            AddressRules().check(address)
    with pytest.raises(InvalidAddress, match="worker_allow"):
        AddressRules(["10.0.0.0/8"]).check("http://11.0.0.1:30000")
    with pytest.raises(InvalidAddress, match=r"10\.0\.0\.0/33"):
        AddressRules(["10.0.0.0/33"])
