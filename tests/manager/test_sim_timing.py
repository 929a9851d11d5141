"""The timing model: pure arithmetic, and a clock that does not drift."""

from __future__ import annotations

import asyncio

import pytest

from trimtab_manager.sim import SimConfig
from trimtab_manager.sim.timing import LATE_S, Pacer, TimingModel

MODEL = TimingModel(
    prefill_tokens_per_s=1_000.0, decode_step_s=0.02, decode_request_step_s=0.001, step_overhead_s=0.005
)


def test_prefill_is_paid_for_uncached_tokens_only() -> None:
    """Overhead plus tokens over rate; a fully cached prompt costs the overhead."""
    assert MODEL.prefill_s(500) == pytest.approx(0.505)
    assert MODEL.prefill_s(0) == pytest.approx(0.005)


def test_a_batch_is_cheaper_than_its_requests_one_by_one() -> None:
    """Each further request adds a little to the step that all share."""
    assert MODEL.decode_s(1) == pytest.approx(0.02)
    assert MODEL.decode_s(8) == pytest.approx(0.027)
    assert MODEL.decode_s(8) < 8 * MODEL.decode_s(1)


def test_each_step_reads_all_contexts() -> None:
    """Where the configuration says so, the same batch is slower with longer contexts."""
    model = TimingModel(1_000.0, 0.02, 0.001, 0.005, decode_kv_token_s=1e-6)
    assert model.decode_s(8, 10_000) == pytest.approx(0.037)


def test_the_model_comes_from_the_configuration() -> None:
    """Every rate is taken over."""
    config = SimConfig(
        prefill_tokens_per_s=7, decode_step_s=1, decode_request_step_s=2, step_overhead_s=3, decode_kv_token_s=4
    )
    assert TimingModel.of(config) == TimingModel(7, 1, 2, 3, 4)


def test_late_timers_do_not_add_up() -> None:
    """A step that ends late shortens the next one: ten steps end when ten steps should."""
    pacer, now, late = Pacer(0.5), 100.0, 0.001
    delays = []
    for _ in range(10):
        delays.append(pacer.delay(now, 0.02))
        now += delays[-1] + late
    assert delays[0] == pytest.approx(0.01)
    assert now == pytest.approx(100.0 + 10 * 0.01 + late)


def test_a_stall_is_not_followed_by_a_burst() -> None:
    """After a delay beyond the tolerance the plan starts anew."""
    pacer = Pacer(1)
    pacer.delay(100.0, 0.02)
    assert pacer.delay(100.02 + 10 * LATE_S, 0.02) == pytest.approx(0.02)


def test_an_idle_engine_owes_nothing() -> None:
    """``restart`` forgets when the last work was due."""
    pacer = Pacer(1)
    pacer.delay(100.0, 5)
    pacer.restart()
    assert pacer.delay(100.0, 0.02) == pytest.approx(0.02)


def test_real_time_is_not_scaled() -> None:
    """``/slow_down`` names real seconds."""
    assert Pacer(0).delay(100.0, 100, 0.03) == pytest.approx(0.03)


async def test_work_that_takes_no_time_lets_others_run() -> None:
    """A scale of 0 does not starve the event loop."""
    pacer = Pacer(0)
    seen: list[bool] = []
    asyncio.get_running_loop().call_soon(seen.append, True)
    await pacer.work(1)
    assert seen == [True]
