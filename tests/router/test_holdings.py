"""What a sender holds: everything that was granted in an epoch is presented, and nothing is added after its end."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab import holdings as module
from trimtab.holdings import Epoch, Holdings
from trimtab.lease_record import RouterLease


def lease(number: int, session: str | None = None) -> RouterLease:
    """A lease as a router grants it."""
    return RouterLease(
        id=f"{number:016x}",
        backend_id=f"e{number}",
        backend_generation=1,
        authority="h:1",
        url="http://h:1",
        session=session,
        weight_version=1,
        epoch=0,
        sticky=False,
        reason="new",
        waited_ms=0,
    )


def attached(*leases: RouterLease) -> tuple[Holdings, Epoch]:
    """Holdings at the router ``r1``, with some leases under the numbers 1, 2, ..."""
    holdings = Holdings()
    holdings.begin("r1")
    epoch = holdings.epoch()
    for number, each in enumerate(leases, start=1):
        assert holdings.add(epoch, number, each)
    return holdings, epoch


def answer(router: str, *adopted: dict[str, Any]) -> dict[str, Any]:
    """What a router says to what was presented."""
    return {"incarnation": router, "adopted": list(adopted)}


def test_nothing_is_added_after_the_end_of_an_epoch() -> None:
    """A grant of the old start that arrives late is not kept: it would never be presented."""
    holdings, epoch = attached()
    holdings.end(epoch)
    assert not holdings.add(epoch, 1, lease(1))
    assert holdings.epoch().router is None
    holdings.begin("r2")
    assert not holdings.add(epoch, 1, lease(1))
    assert holdings.presented() == {"adopt": [], "pins": []}


def test_an_old_epoch_ends_nothing() -> None:
    """Whoever learns late that an epoch is over does not end the next one."""
    holdings, epoch = attached()
    holdings.end(epoch)
    holdings.begin("r2")
    holdings.end(epoch)
    assert holdings.epoch().router == "r2"


def test_leases_are_adopted_or_lost_one_by_one() -> None:
    """An adopted one has another name at the new start, and is presented again under that; a lost one is not."""
    holdings, epoch = attached(lease(1), lease(2))
    holdings.end(epoch)
    refusal = {"seq": 2, "error": {"code": "unknown_backend", "message": "e2 is not here"}}
    assert holdings.take_in(answer("r2", {"seq": 1, "lease_id": "abc"}, refusal)) == (1, 1)
    held, lost = holdings.find(1), holdings.find(2)
    assert held is not None
    assert lost is not None
    assert (held.id, held.router, held.lost) == ("abc", "r2", None)
    assert lost.lost == "it did not adopt it (unknown_backend: e2 is not here)"
    assert [each["lease_id"] for each in holdings.presented()["adopt"]] == ["abc"]
    assert holdings.backends() == {"e1"}


def test_a_router_that_lost_the_sender_is_not_presented_with_its_own_leases() -> None:
    """The same start took them for ambiguous: an execution must not have two ends."""
    holdings, _ = attached(lease(1))
    assert holdings.give_up("another", "why") == 0
    assert holdings.give_up("r1", "why") == 1
    assert holdings.presented()["adopt"] == []


def test_a_lease_that_ended_is_forgotten() -> None:
    """Also while it is being presented."""
    holdings, _ = attached(lease(1))
    holdings.drop(1)
    holdings.drop(1)
    assert holdings.find(1) is None
    assert holdings.take_in(answer("r2", {"seq": 1, "lease_id": "abc"})) == (1, 0)


def test_pins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest sessions are remembered, and those that are over are not."""
    monkeypatch.setattr(module, "MAX_PINS", 2)
    holdings, _ = attached(lease(1, "a"), lease(2, "b"), lease(3, "a"), lease(4, "c"))
    holdings.unpin("c")
    holdings.unpin("c")
    assert holdings.presented()["pins"] == [{"session": "a", "backend": "e3"}]
