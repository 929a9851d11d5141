"""Every policy by the name that tables use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from benches.balance.policies import plain, sticky, variants
from benches.balance.policies.cache_aware import CacheAware, CacheAwareSmg
from benches.balance.policies.core import RouterCore
from benches.balance.policies.hashing import ConsistentHash

if TYPE_CHECKING:
    from benches.balance.policies.base import Maker

Event: TypeAlias = Literal["loss", "publication"]
"""What happens to the fleet of a scenario beside its work."""


@dataclass(frozen=True)
class Contender:
    """A policy of the comparison.

    Attributes:
        make: Makes one for a run.
        whose: Routing off, a peer's, trimtab's default, or one that trimtab could have.
        what: In a line.
        everywhere: Whether it runs in every scenario, or only where it teaches most.
        needs: What must happen to the fleet, as it is another contender where that does not; None: nothing.
    """

    make: Maker
    whose: Literal["off", "peer", "trimtab", "variant"]
    what: str
    everywhere: bool = True
    needs: Event | None = None


OFF = "routing off"
TRIMTAB = "trimtab"
UNCLOSED = "trimtab, not closed"
STICKY = "no spill"

CONTENDERS: dict[str, Contender] = {
    OFF: Contender(plain.RoutingOff, "off", "each task id, with its samples, on one engine in turn"),
    "round robin": Contender(plain.RoundRobin, "peer", "each request on the next engine", everywhere=False),
    "random": Contender(plain.Random, "peer", "each request anywhere", everywhere=False),
    "power of two": Contender(plain.PowerOfTwo, "peer", "each request on the less loaded of two engines"),
    "power of two, smg": Contender(
        plain.PolledPowerOfTwo, "peer", "smg's: by the tokens in use when last asked, every 10 s", everywhere=False
    ),
    "least connections": Contender(plain.LeastConnections, "peer", "nginx `least_conn` with weights"),
    "consistent hash": Contender(ConsistentHash, "peer", "session key on a ring, weighted (smg, vllm-router, nginx)"),
    "cache-aware": Contender(CacheAware, "peer", "sglang-router's default: longest known prefix (64, 1.5)"),
    "cache-aware, slime": Contender(
        partial(CacheAware, balance_abs=10, balance_rel=1.2), "peer", "the same with slime's limits (10, 1.2)"
    ),
    "cache-aware, smg": Contender(
        CacheAwareSmg, "peer", "smg's default: longest known prefix, within two deviations of the mean load"
    ),
    "sticky random": Contender(sticky.StickyRandom, "peer", "sessions stay where chance put them", everywhere=False),
    "haproxy": Contender(sticky.HaproxyStick, "peer", "haproxy `leastconn`, weights, stick table"),
    "manual min_load": Contender(sticky.MinLoad, "peer", "smg, sglang-router: sticky, fewest open requests"),
    "sticky_least_loaded": Contender(sticky.FewestSessions, "peer", "vllm-router: sticky, fewest sessions"),
    TRIMTAB: Contender(
        RouterCore, "trimtab", "its default, by its own code: least (outstanding + 1) / capacity, spill"
    ),
    UNCLOSED: Contender(
        partial(RouterCore, forgets=False),
        "trimtab",
        "the same, where nobody says that a session is over: plain HTTP clients",
        everywhere=False,
    ),
    STICKY: Contender(
        partial(RouterCore, spill=False), "variant", "`spill = false`: sessions never move (the default before this)"
    ),
    "plain": Contender(
        partial(RouterCore, load="plain", spill=False),
        "variant",
        '`load = "plain"`, `spill = false`: outstanding / capacity, strictly sticky',
        everywhere=False,
    ),
    "sessions": Contender(
        partial(RouterCore, load="sessions"),
        "variant",
        '`load = "sessions"`: an idle session counts 1/2',
        everywhere=False,
    ),
    "sessions, not closed": Contender(
        partial(RouterCore, load="sessions", forgets=False),
        "variant",
        "the same, where nobody says that a session is over",
        everywhere=False,
    ),
    "sessions, no spill": Contender(
        partial(RouterCore, load="sessions", spill=False), "variant", "strictly sticky", everywhere=False
    ),
    "rebind": Contender(
        partial(RouterCore, rebind_on_publish=True),
        "variant",
        "`rebind_on_publish`: pins chosen anew with new weights",
        needs="publication",
    ),
    "ramp": Contender(
        partial(RouterCore, ramp_s=60.0),
        "variant",
        "`ramp_s = 60`: an engine that is fresh or back counts as a quarter for a minute",
        needs="loss",
    ),
    "idle 1/4": Contender(
        partial(variants.Selection, idle_weight=0.25),
        "variant",
        "strictly sticky, an idle session counts 1/4",
        everywhere=False,
    ),
    "idle 1": Contender(
        partial(variants.Selection, idle_weight=1.0), "variant", "the same, it counts as one", everywhere=False
    ),
    "tokens": Contender(
        variants.TokenLoad,
        "variant",
        "strictly sticky, load is the tokens of the contexts of all sessions",
        everywhere=False,
    ),
    "tokens, idle 1/2": Contender(
        partial(variants.TokenLoad, idle_weight=0.5), "variant", "the same, idle contexts count 1/2", everywhere=False
    ),
    "tokens served": Contender(
        variants.TokensServed,
        "variant",
        "strictly sticky, fewest output tokens so far per capacity",
        everywhere=False,
    ),
    "ties at random": Contender(
        variants.RandomTies,
        "variant",
        "the default, but only load decides, and chance between equals",
        everywhere=False,
    ),
    "spill, margin 2": Contender(
        partial(variants.Spill, margin=2), "variant", "spill from 2 calls more", everywhere=False
    ),
    "spill, margin 4": Contender(
        partial(variants.Spill, margin=4), "variant", "spill from 4 calls more", everywhere=False
    ),
    "spill, eager": Contender(
        partial(variants.Spill, ratio=1.25, margin=2),
        "variant",
        "spill from 1.25 x and 2 calls more",
        everywhere=False,
    ),
    "spill, 32k": Contender(
        partial(variants.Spill, max_context_tokens=32_768),
        "variant",
        "spill of contexts up to 32,768 tokens",
        everywhere=False,
    ),
    "spill, any context": Contender(
        partial(variants.Spill, max_context_tokens=1_000_000),
        "variant",
        "spill whatever the contexts",
        everywhere=False,
    ),
}
