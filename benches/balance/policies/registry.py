"""Every policy by the name that tables use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from benches.balance.policies import plain, sticky, variants
from benches.balance.policies.cache_aware import CacheAware
from benches.balance.policies.core import RouterCore
from benches.balance.policies.hashing import ConsistentHash

if TYPE_CHECKING:
    from benches.balance.policies.base import Maker


@dataclass(frozen=True)
class Contender:
    """A policy of the comparison.

    Attributes:
        make: Makes one for a run.
        whose: Routing off, a peer's, trimtab's default, or one that trimtab could have.
        what: In a line.
        everywhere: Whether it runs in every scenario, or only where it teaches most.
    """

    make: Maker
    whose: Literal["off", "peer", "trimtab", "variant"]
    what: str
    everywhere: bool = True


OFF = "routing off"
TRIMTAB = "trimtab"
PROPOSED = "spill"

CONTENDERS: dict[str, Contender] = {
    OFF: Contender(plain.RoutingOff, "off", "each task id, with its samples, on one engine in turn"),
    "round robin": Contender(plain.RoundRobin, "peer", "each request on the next engine", everywhere=False),
    "random": Contender(plain.Random, "peer", "each request anywhere", everywhere=False),
    "power of two": Contender(plain.PowerOfTwo, "peer", "each request on the less loaded of two engines"),
    "least connections": Contender(plain.LeastConnections, "peer", "nginx `least_conn` with weights"),
    "consistent hash": Contender(ConsistentHash, "peer", "session key on a ring, weighted (smg, vllm-router, nginx)"),
    "cache-aware": Contender(CacheAware, "peer", "sglang-router's default: longest known prefix (64, 1.5)"),
    "cache-aware, slime": Contender(
        partial(CacheAware, balance_abs=10, balance_rel=1.2), "peer", "the same with slime's limits (10, 1.2)"
    ),
    "sticky random": Contender(sticky.StickyRandom, "peer", "sessions stay where chance put them", everywhere=False),
    "haproxy": Contender(sticky.HaproxyStick, "peer", "haproxy `leastconn`, weights, stick table"),
    "manual min_load": Contender(sticky.MinLoad, "peer", "smg, sglang-router: sticky, fewest open requests"),
    "sticky_least_loaded": Contender(sticky.FewestSessions, "peer", "vllm-router: sticky, fewest sessions"),
    TRIMTAB: Contender(RouterCore, "trimtab", "router_core's default, by its own code"),
    "plain ratio": Contender(
        partial(variants.Selection, after=0), "variant", "outstanding / capacity", everywhere=False
    ),
    "idle 1/4": Contender(
        partial(variants.Selection, idle_weight=0.25), "variant", "an idle session counts 1/4", everywhere=False
    ),
    "idle 1/2": Contender(
        partial(variants.Selection, idle_weight=0.5), "variant", "an idle session counts 1/2", everywhere=False
    ),
    "idle 1/2, not closed": Contender(
        partial(variants.Selection, idle_weight=0.5, forgets=False),
        "variant",
        "the same, where nobody says that a session is over",
        everywhere=False,
    ),
    "idle 1": Contender(partial(variants.Selection, idle_weight=1.0), "variant", "counts as one", everywhere=False),
    "tokens": Contender(
        variants.TokenLoad, "variant", "load is the tokens of the contexts of all sessions", everywhere=False
    ),
    "tokens, idle 1/2": Contender(
        partial(variants.TokenLoad, idle_weight=0.5), "variant", "idle contexts count 1/2", everywhere=False
    ),
    "tokens served": Contender(
        variants.TokensServed, "variant", "fewest output tokens so far per capacity", everywhere=False
    ),
    PROPOSED: Contender(
        variants.Spill, "variant", "idle sessions may leave crowded engines (2 x, 4 calls, 32k tokens)"
    ),
    "spill, not closed": Contender(
        partial(variants.Spill, forgets=False),
        "variant",
        "the same, where nobody says that a session is over",
        everywhere=False,
    ),
    "spill, any context": Contender(
        partial(variants.Spill, max_context_tokens=1_000_000), "variant", "whatever their contexts", everywhere=False
    ),
    "spill, idle 1/2": Contender(partial(variants.Spill, idle_weight=0.5), "variant", "both"),
    "spill, rebind": Contender(
        partial(variants.Spill, rebind_on_publish=True), "variant", "and pins chosen anew with new weights"
    ),
}
