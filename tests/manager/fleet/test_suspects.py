"""What the manager tells the guard against requests that kill engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet


async def test_a_death_makes_what_ran_there_a_suspect(fleet: Fleet) -> None:
    """Also when the connection breaks after the engine was fenced; the evidence is what the process left."""
    lease = fleet.pool.acquire("s")
    fleet.launcher.handles[lease.backend_id].kill()
    await wait_until(lambda: lease.backend_id not in fleet.published(), "it is fenced")
    lease.settle("ambiguous")
    (entry,) = fleet.pool.poison_entries()
    (death,) = entry.deaths
    assert (entry.session, death.backend, death.generation) == ("s", lease.backend_id, 1)
    assert "SIGKILL" in death.evidence


async def test_an_engine_that_is_given_up_accuses_nobody(fleet: Fleet) -> None:
    """A lost answer to a control call says nothing about requests."""
    lease = fleet.pool.acquire("s")
    replica = fleet.fleet.slot(lease.backend_id).replica
    assert replica is not None
    replica.engine.quarantine("its answer was lost")
    assert lease.backend_id not in fleet.published()
    lease.settle("ambiguous")
    assert fleet.pool.poison_entries() == []
