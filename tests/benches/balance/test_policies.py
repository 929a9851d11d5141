"""Policies choose as those they stand for."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from benches.balance.policies import plain, sticky, variants
from benches.balance.policies.base import Call, Policy
from benches.balance.policies.cache_aware import CacheAware, CacheAwareSmg
from benches.balance.policies.core import RouterCore
from benches.balance.policies.hashing import ConsistentHash

if TYPE_CHECKING:
    from benches.balance.policies.base import Maker


def call(session: str, *, task: int = 0, prompt: int = 4_000) -> Call:
    """A call with 1,000 tokens that all share, and 500 of its task."""
    return Call(session, task, prompt, 1_000, 500)


def drive(policy: Policy, seed: int) -> list[int]:
    """Picks of a random history: calls of live sessions, ends, closes, a loss and a return."""
    rng = random.Random(seed)
    picks, running, idle = [], [], ["s0"]
    for number in range(600):
        action = rng.random()
        if action < 0.5 and idle:
            session = idle.pop(rng.randrange(len(idle)))
            made = call(session)
            picks.append(policy.pick(made, float(number)))
            running.append((made, picks[-1]))
        elif action < 0.8 and running:
            made, replica = running.pop(rng.randrange(len(running)))
            policy.settle(made, replica, 10)
            if rng.random() < 0.3:
                policy.close(made.session)
            else:
                idle.append(made.session)
        else:
            idle.append(f"s{number}")
        if number == 200:
            policy.lost(2)
            for made, replica in [(made, replica) for made, replica in running if replica == 2]:
                policy.settle(made, replica, 0)
                idle.append(made.session)
            running = [(made, replica) for made, replica in running if replica != 2]
        if number == 400:
            policy.back(2)
    return picks


@pytest.mark.parametrize(
    ("core", "variant"),
    [
        (RouterCore, variants.Spill),
        (partial(RouterCore, spill=False), variants.Selection),
        (partial(RouterCore, load="plain", spill=False), partial(variants.Selection, after=0)),
        (partial(RouterCore, load="sessions", spill=False), partial(variants.Selection, idle_weight=0.5)),
        (partial(RouterCore, load="sessions"), partial(variants.Spill, idle_weight=0.5)),
    ],
    ids=["default", "no spill", "plain", "sessions, no spill", "sessions"],
)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("capacities", [(1.0,) * 4, (8.0, 8.0, 2.0, 2.0)], ids=["equal", "8:2"])
def test_the_variants_start_from_the_core(
    core: Maker, variant: Maker, seed: int, capacities: tuple[float, ...]
) -> None:
    """What variants are made of picks what ``router_core`` does, whatever it is set to, also across a loss."""
    assert drive(variant(capacities, random.Random(0)), seed) == drive(core(capacities, random.Random(0)), seed)


def test_histories_have_spills() -> None:
    """The comparison above means something: with the core's default some of its picks are others."""
    with_spill = drive(RouterCore((1.0,) * 4, random.Random(0)), 0)
    assert with_spill != drive(RouterCore((1.0,) * 4, random.Random(0), spill=False), 0)


def test_an_update_lets_pins_go_where_that_is_the_rule() -> None:
    """After a publication a session is placed anew; without the rule it stays."""
    for rebinds in (True, False):
        policy = RouterCore((1.0, 1.0), random.Random(0), rebind_on_publish=rebinds)
        made = [call(f"s{number}") for number in range(4)]
        homes = [policy.pick(one, 0.0) for one in made]
        assert homes == [0, 1, 0, 1]
        for one, home in zip(made, homes, strict=True):
            policy.settle(one, home, 10)
        policy.published()
        policy.pick(call("new"), 0.0)
        assert policy.pick(call("s0"), 0.0) == (1 if rebinds else 0)


def test_routing_off_keeps_a_task_together() -> None:
    """All samples of a task on one engine, whatever is there."""
    policy = plain.RoutingOff((1.0,) * 4, random.Random(0))
    assert [policy.pick(call(f"{task}-{sample}", task=task), 0.0) for task in range(6) for sample in range(2)] == [
        0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1,
    ]  # fmt: skip


def test_haproxy_weighs() -> None:
    """90 new sessions on weights 10, 40, 40 go 10, 40, 40, as it was seen to do."""
    policy = sticky.HaproxyStick((10.0, 40.0, 40.0), random.Random(0))
    assert Counter(policy.pick(call(f"s{number}"), 0.0) for number in range(90)) == {0: 10, 1: 40, 2: 40}


def test_min_load_goes_home() -> None:
    """Sessions of a lost engine come back with it, as smg's do."""
    policy = sticky.MinLoad((1.0, 1.0), random.Random(0))
    homes = {f"s{number}": policy.pick(call(f"s{number}"), 0.0) for number in range(10)}
    policy.lost(0)
    assert {policy.pick(call(session), 0.0) for session in homes} == {1}
    policy.back(0)
    assert {session: policy.pick(call(session), 0.0) for session in homes} == homes


def test_the_ring_is_even_by_weight_and_stable() -> None:
    """Sessions follow the weights roughly; a loss moves only the lost engine's."""
    policy = ConsistentHash((3.0, 1.0, 1.0), random.Random(0))
    homes = {f"s{number}": policy.pick(call(f"s{number}"), 0.0) for number in range(2_000)}
    assert 1_000 < Counter(homes.values())[0] < 1_400
    policy.lost(1)
    assert all(policy.pick(call(session), 0.0) == home for session, home in homes.items() if home != 1)


def test_cache_aware_herds_until_loads_differ() -> None:
    """Prompts with a large common part go to one engine, until it has the limit more than another."""
    policy = CacheAware((1.0, 1.0), random.Random(0), balance_abs=10, balance_rel=1.2)
    picks = [policy.pick(call(f"s{number}", prompt=2_000), 0.0) for number in range(20)]
    assert len(set(picks[:11])) == 1
    assert len(set(picks)) == 2


def test_smgs_cache_aware_spills_near_the_mean() -> None:
    """An engine that knows the prompt is left once it is over four above the mean, whatever the threshold of 64."""
    policy = CacheAwareSmg((1.0, 1.0), random.Random(0))
    picks = [policy.pick(call(f"s{number}", prompt=2_000), 0.0) for number in range(40)]
    # The first nine herd; from then on the least loaded one takes its part.
    assert len(set(picks[:9])) == 1
    assert len(set(picks[:12])) == 2
    assert min(Counter(picks).values()) > 10


def test_smgs_power_of_two_knows_the_last_poll_only() -> None:
    """Between two polls everything goes where least was."""
    policy = plain.PolledPowerOfTwo((1.0, 1.0), random.Random(0))
    first = policy.pick(call("first", prompt=9_000), 0.0)
    assert {policy.pick(call(f"s{number}"), 10.0) for number in range(20)} == {1 - first}
    assert {policy.pick(call(f"t{number}"), 20.0) for number in range(20)} == {first}


def test_cache_aware_follows_a_session() -> None:
    """The longest known prefix wins."""
    policy = CacheAware((1.0,) * 4, random.Random(0))
    first = policy.pick(call("a", prompt=50_000), 0.0)
    for number in range(30):
        policy.pick(call(f"s{number}", task=number, prompt=50_000), 0.0)
    assert policy.pick(call("a", prompt=50_000), 0.0) == first


def test_idle_sessions_count() -> None:
    """An engine whose sessions all wait for their tools is not empty."""
    policy = variants.Selection((1.0, 1.0), random.Random(0), idle_weight=0.5)
    for number in range(4):
        made = call(f"s{number}")
        replica = policy.pick(made, 0.0)
        if replica == 0:
            policy.settle(made, replica, 1)
    # Two idle sessions on one side, two running ones on the other: 1 + 1 against 1 + 2, and then 3 against 3, where the
    # side with fewer sessions wins. Were idle ones free, it would be 2 against 3.
    assert [policy.pick(call(name), 0.0) for name in ("new", "newer")] == [0, 1]


def test_spill_moves_a_session_once() -> None:
    """From a crowded engine to an empty one, and not when its context is long, nor back."""
    policy = variants.Spill((1.0, 1.0), random.Random(0), ratio=2.0, margin=3)
    policy.lost(1)
    made = [call(f"s{number}", prompt=70_000 if number == 1 else 4_000) for number in range(6)]
    for one in made:
        policy.pick(one, 0.0)
    policy.back(1)
    for one in made[:2]:
        policy.settle(one, 0, 10)
    assert policy.pick(call("s1", prompt=70_500), 0.0) == 0
    again = call("s0")
    assert policy.pick(again, 0.0) == 1
    policy.settle(again, 1, 10)
    assert policy.pick(call("s0"), 0.0) == 1


def test_spill_is_rate_limited() -> None:
    """No more than so many sessions a minute."""
    policy = variants.Spill((1.0, 1.0), random.Random(0), per_minute=1)
    policy.lost(1)
    made = [call(f"s{number}") for number in range(10)]
    for one in made:
        policy.pick(one, 1.0)
    policy.back(1)
    for one in made[:2]:
        policy.settle(one, 0, 10)
    assert policy.pick(call("s0"), 1.0) == 1
    stays = call("s1")
    assert policy.pick(stays, 2.0) == 0
    policy.settle(stays, 0, 10)
    assert policy.pick(call("s1"), 61.0) == 1
