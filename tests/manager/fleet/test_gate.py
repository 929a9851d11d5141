"""Gates and holds over a real pool: who is in routing, and why not."""

from __future__ import annotations

import pytest

from trimtab import Pool
from trimtab.errors import InvalidTransition, NoEligibleBackend, NotServing
from trimtab_manager.fleet.gate import DRAINED, BackendGate
from trimtab_manager.fleet.hold import Hold
from trimtab_manager.fleet.suspension import Suspensions


class Model:
    """A pool with two engines, their gates, and a hold."""

    def __init__(self) -> None:
        self.pool = Pool("rollout/policy")
        self.suspensions = Suspensions()
        self.gates: list[BackendGate] = []
        self.hold = Hold(self.pool, self.suspensions, lambda: self.gates, "test")
        for number in range(2):
            gate = BackendGate(self.pool, self.hold.fences_all)
            gate.attach(self.pool.add_backend(f"10.0.0.{number}:30000", id=f"policy/{number}"))
            self.gates.append(gate)

    def eligible(self) -> list[str]:
        """Who may get a request."""
        return [backend.id for backend in self.pool.statistics().backends if backend.eligible]


@pytest.fixture
def model() -> Model:
    """A model that serves."""
    return Model()


def test_an_engine_is_out_until_its_last_reason_is_gone(model: Model) -> None:
    """The same reason twice is lifted once; one reason does not lift another."""
    gate = model.gates[0]
    gate.close()
    gate.close()
    gate.close(DRAINED)
    gate.open()
    assert (model.eligible(), gate.reasons) == (["policy/1"], (DRAINED,))
    gate.open(DRAINED)
    assert model.eligible() == ["policy/0", "policy/1"]


def test_a_gate_counts_the_leases_of_its_engine(model: Model) -> None:
    """Open and closed alike, and 0 once it is removed."""
    leases = [model.pool.acquire() for _ in range(4)]
    assert [gate.outstanding() for gate in model.gates] == [2, 2]
    model.gates[0].close()
    assert model.gates[0].outstanding() == 2
    model.gates[0].remove()
    assert model.gates[0].outstanding() == 0
    for lease in leases:
        lease.settle("completed")


def test_a_reason_from_before_the_registration_holds_after_it(model: Model) -> None:
    """An engine that was closed as a candidate does not come in."""
    gate = BackendGate(model.pool)
    gate.close(DRAINED)
    gate.attach(model.pool.add_backend("10.0.0.9:30000", id="policy/9"))
    assert "policy/9" not in model.eligible()


def test_a_held_model_needs_no_fence_per_engine(model: Model) -> None:
    """Discovery says that engines sleep, not that they drain; an engine that is drained on top stays out after it."""
    model.hold.put("sleeping")
    with pytest.raises(NotServing):
        model.pool.acquire()
    for gate in model.gates:
        gate.close()
    assert not any(backend.draining for backend in model.pool.statistics().backends)
    assert model.suspensions.owners == ("sleeping",)
    model.gates[0].close(DRAINED)
    for gate in model.gates:
        gate.open()
    model.hold.lift()
    assert model.eligible() == ["policy/1"]
    assert not model.suspensions.active
    model.hold.lift()
    model.pool.acquire().settle("not_sent")


def test_a_model_that_goes_to_sleep_from_a_pause_serves_nothing_between(model: Model) -> None:
    """What it is held for is its state all along; whoever waits gets an engine when it is off, and not before."""
    assert model.pool.statistics().model_state == "ready"
    model.hold.put("paused")
    waiting = model.pool.acquire_or_park(wait_s=60.0)
    assert model.pool.statistics().model_state == "paused"
    model.hold.put("sleeping")
    assert model.pool.statistics().model_state == "sleeping"
    assert (model.hold.fences_all(), model.pool.statistics().waiters) == (True, 1)
    model.hold.lift()
    assert (model.pool.statistics().model_state, model.pool.statistics().waiters) == ("ready", 0)
    del waiting


def test_an_update_can_borrow_the_latch_of_a_sleeping_model(model: Model) -> None:
    """At no moment between the hold, the update, and the hold again is anything granted, nor is the version lost."""
    model.hold.put("sleeping")
    with model.hold.parked():
        with pytest.raises((NotServing, NoEligibleBackend)):
            model.pool.acquire()
        model.pool.begin_update("u", to=3)
        model.pool.drain("u", timeout_s=1)
        model.pool.end_server_pause("u")
        model.pool.publish("u", 3)
        with pytest.raises(NoEligibleBackend):
            model.pool.acquire()
    with pytest.raises(NotServing):
        model.pool.acquire()
    model.hold.lift()
    assert model.eligible() == ["policy/0", "policy/1"]
    assert model.pool.weight_version == 3


def test_a_paused_model_does_not_lend_its_latch(model: Model) -> None:
    """An update pauses by itself, and would let the engines go on at its end."""
    model.hold.put("paused")
    with pytest.raises(InvalidTransition, match="resume it first"), model.hold.parked():
        pass
    model.hold.lift()
