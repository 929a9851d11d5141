"""The knobs of one pool, which gateway and manager share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab._core import Pool
from trimtab.spec.error import ConfigError
from trimtab.spec.rules import MAX_COUNT, check_bool, check_choice, check_int, check_seconds

_MAX_POISON_DEATHS = 100
"""Whoever lets more engines die wants the guard off."""


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """How the pool of a model grants, keeps and ends executions. See ``docs/configuration.md`` for each knob's reason.

    Attributes:
        session_ttl_s: An idle session without an open lease is forgotten after this many seconds.
        session_cap: Most sessions remembered at a time.
        max_concurrent: Most executions outstanding in the pool; None: no limit.
        queue_size: Most requests that wait for a place while so many run; None: 100,000.
        queue_timeout_s: How long a request that says nothing of its patience waits for a place; None: not at all.
        versioned: Grant nothing before a controller has published a first weight version.
        on_ambiguous: What an execution with an unknown end means: ``settle`` counts it, ``resolve`` finds
            out when its engine no longer has it, ``fail_pool`` fails the pool.
        on_drain_timeout: What a drain past its deadline means: ``fail`` fails the pool, ``report`` only tells.
        sender_ttl_s: A sender that is silent for this many seconds is lost.
        min_ready_engines: ``/ready`` asks for this many eligible engines; 0: the model is not required.
        recovery: What becomes of leases that senders present after a restart of the gateway: ``adopt`` takes over those
            that still fit, ``restart`` makes each ambiguous.
        unhealthy_budget_s: How long an engine may be unhealthy in a row, pauses not counted; None: for ever.
        on_unhealthy: What happens then: ``exclude`` takes the engine out, ``fail_pool`` fails the pool.
        load: What is compared per capacity: ``outstanding`` counts executions and one more; ``plain`` executions;
            ``sessions`` adds half for each idle session.
        spill: An idle session with a short context leaves an engine that is much fuller than the best one.
        rebind_on_publish: A new weight version lets every session choose its engine anew.
        ramp_s: How long an engine that is fresh or back counts as a quarter of its capacity; None: not at all.
        poison_deaths: Deaths of engines that a request or session may coincide with before it is refused; 0: nothing.
        poison_quarantine_s: How long it is refused after the last of them.
    """

    session_ttl_s: float = 3600.0
    session_cap: int = 1_000_000
    max_concurrent: int | None = None
    queue_size: int | None = None
    queue_timeout_s: float | None = None
    versioned: bool = False
    on_ambiguous: Literal["settle", "resolve", "fail_pool"] = "settle"
    on_drain_timeout: Literal["fail", "report"] = "fail"
    sender_ttl_s: float = 120.0
    min_ready_engines: int = 1
    recovery: Literal["adopt", "restart"] = "adopt"
    unhealthy_budget_s: float | None = None
    on_unhealthy: Literal["exclude", "fail_pool"] = "exclude"
    load: Literal["outstanding", "plain", "sessions"] = "outstanding"
    spill: bool = True
    rebind_on_publish: bool = False
    ramp_s: float | None = None
    poison_deaths: int = 2
    poison_quarantine_s: float = 600.0

    def __post_init__(self) -> None:
        check_seconds("session_ttl_s", self.session_ttl_s)
        check_int("session_cap", self.session_cap, 1, MAX_COUNT)
        if self.max_concurrent is not None:
            check_int("max_concurrent", self.max_concurrent, 1, MAX_COUNT)
        self._check_queue()
        check_bool("versioned", self.versioned)
        check_choice("on_ambiguous", self.on_ambiguous, ("settle", "resolve", "fail_pool"))
        check_choice("on_drain_timeout", self.on_drain_timeout, ("fail", "report"))
        check_seconds("sender_ttl_s", self.sender_ttl_s)
        check_int("min_ready_engines", self.min_ready_engines, 0, MAX_COUNT)
        check_choice("recovery", self.recovery, ("adopt", "restart"))
        if self.unhealthy_budget_s is not None:
            check_seconds("unhealthy_budget_s", self.unhealthy_budget_s)
        check_choice("on_unhealthy", self.on_unhealthy, ("exclude", "fail_pool"))
        check_choice("load", self.load, ("outstanding", "plain", "sessions"))
        check_bool("spill", self.spill)
        check_bool("rebind_on_publish", self.rebind_on_publish)
        if self.ramp_s is not None:
            check_seconds("ramp_s", self.ramp_s)
        if self.on_unhealthy == "fail_pool" and self.unhealthy_budget_s is None:
            raise ConfigError(
                "on_unhealthy", "'fail_pool' is refused: it says what follows unhealthy_budget_s; set that"
            )

        check_int("poison_deaths", self.poison_deaths, 0, _MAX_POISON_DEATHS)
        check_seconds("poison_quarantine_s", self.poison_quarantine_s)

    def _check_queue(self) -> None:
        if self.queue_size is not None:
            check_int("queue_size", self.queue_size, 0, MAX_COUNT)
        if self.queue_timeout_s is not None:
            check_seconds("queue_timeout_s", self.queue_timeout_s)
        for key in ("queue_size", "queue_timeout_s"):
            if getattr(self, key) is not None and self.max_concurrent is None:
                raise ConfigError(key, "is refused: nothing is queued for without max_concurrent")

    def create_pool(self, name: str) -> Pool:
        """An empty pool with these knobs. ``name`` is shown in statistics and logs, usually ``role/model``."""
        return Pool(
            name,
            session_ttl_s=self.session_ttl_s,
            session_cap=self.session_cap,
            max_concurrent=self.max_concurrent,
            queue_size=self.queue_size,
            queue_timeout_s=self.queue_timeout_s,
            await_version=self.versioned,
            on_ambiguous=self.on_ambiguous,
            on_drain_timeout=self.on_drain_timeout,
            sender_ttl_s=self.sender_ttl_s,
            recovery=self.recovery,
            unhealthy_budget_s=self.unhealthy_budget_s,
            on_unhealthy=self.on_unhealthy,
            load=self.load,
            spill=self.spill,
            rebind_on_publish=self.rebind_on_publish,
            ramp_s=self.ramp_s,
            poison_deaths=self.poison_deaths,
            poison_quarantine_s=self.poison_quarantine_s,
        )
