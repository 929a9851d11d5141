"""What the numbers say, in sentences: figures come from the results, reasons from whoever looked at them."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from benches.balance.figures import change, estimate
from benches.balance.policies.registry import CONTENDERS, OFF, STICKY, TRIMTAB, UNCLOSED
from benches.balance.report import OURS, beaten, column, durations, makespan, signed, spread
from benches.balance.scenarios import REFERENCE, SCENARIOS
from benches.balance.workload import generate

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.balance.figures import Figures
    from benches.balance.sweep import Results

WIDTH = 120
ONE_SIDED = 0.025
"""How often a 95 % interval lies below zero when there is nothing to find."""


def findings(results: Results) -> str:
    """The text below the goals. Needs every scenario."""
    say = _Sentences(results)
    spread_at, versus_off = say.spread_at, say.durations_against_off
    peers = sum(CONTENDERS[name].whose not in OURS for policies in results.values() for name in policies)
    better = beaten(results)
    text = f"""
**Evenness.** On the reference shape the spread is {spread_at(OFF)} with routing off, {spread_at(STICKY)} when sessions
never move, and {spread_at(TRIMTAB)} with trimtab's default, which moves {say.moved(TRIMTAB):.0f} of
{say.turns():,.0f} turns; {spread_at(UNCLOSED)} where nobody closes sessions. Saturated it is
{spread_at(STICKY, "saturated")} without moves and {spread_at(TRIMTAB, "saturated")} with them. Placing
every request anew is more even still (`least connections`: {spread_at("least connections")}), and costs caches:
durations {versus_off("least connections")}.

**Durations.** Routing wins back what waits for a crowded engine: {versus_off(TRIMTAB)} on the reference shape,
{versus_off(TRIMTAB, "light")} when it is light, {versus_off(TRIMTAB, "medium")} when it is medium,
{versus_off(TRIMTAB, "saturated")} when it is saturated, {versus_off(TRIMTAB, "8:2")} where engines differ. Strictly
sticky routing, which is what the field's reference run did, gives {versus_off(STICKY)} on the reference shape;
that run reports -6.1 %, with a smaller spread than here. Much of it is memory: where long sessions meet,
their contexts do not fit, and are computed again and again. {say.cached(OFF)} of the prompts' tokens
are in the cache with routing off, {say.cached(STICKY)} when sessions never move, and {say.cached(TRIMTAB)} with the
default, although moved sessions lose theirs.

**What changed.** Until 2026-11-30 the reference shape was a guess: half of the groups in flight, on engines that had
their cards alone, sessions of 16 turns. trimtab's default won 2.4 % of the durations there and missed the goal. The
shape is now what the configuration of such a run says, and the length of sessions what recordings say: set by these
sources and by the spread with routing off, not by what trimtab does. The former shape, with the longer sessions, is the
scenario `medium`.

**Makespan.** {peers} comparisons with peers, of which {ONE_SIDED * peers:.0f} would be in the peer's favour by chance
if nothing differed. Beyond the interval are: {"; ".join(better) if better else "none"}.

**Why this default.** Moving an idle session pays where it moves from a really crowded engine, and long contexts are
worth it: up to 32,768 tokens only, as the default was, the spread is {spread_at("spill, 32k")} and durations
{say.against("spill, 32k", TRIMTAB, durations)}; with no limit {spread_at("spill, any context")} and
{say.against("spill, any context", TRIMTAB, durations)}. The limit of 65,536 is for engines that prefill more slowly
than these. From two calls more the spread is {spread_at("spill, margin 2")} with {say.moved("spill, margin 2"):.0f}
moves, from four {spread_at("spill, margin 4")} with {say.moved("spill, margin 4"):.0f}; from 1.25 x and two more it is
{spread_at("spill, eager")}, but {say.moved("spill, eager"):,.0f} moves cost
{say.against("spill, eager", TRIMTAB, durations)} of durations. Chance between equal loads, instead of the fewest
sessions and the least recently chosen, gives {spread_at("ties at random")}, durations
{say.against("ties at random", TRIMTAB, durations)}. Counting idle sessions (`load = "sessions"`) gives
{spread_at("sessions")} with {say.moved("sessions"):.0f} moves where sessions are closed, durations
{say.against("sessions", TRIMTAB, durations)}; where they are not closed, dead ones hide where the work is
({spread_at("sessions, not closed")}), and plain HTTP clients close none. So it is there to be chosen, and not the
default.

**What helped little, or not.** Idle sessions as load without spill: {spread_at("idle 1/4")} (1/4),
{spread_at("sessions, no spill")} (1/2), {spread_at("idle 1")} (1), against {spread_at(STICKY)} without. Contexts as
load: {spread_at("tokens")}. Output so far as load: {spread_at("tokens served")}, and a makespan
{say.against("tokens served", TRIMTAB, makespan)} against the default's: it learns of a session when it is too late.
`load = "plain"` differs from strictly sticky routing only where capacities do. Pins chosen anew with new weights:
spread {spread_at("rebind", "updates")} instead of {spread_at(TRIMTAB, "updates")} there, makespan
{say.against("rebind", TRIMTAB, makespan, "updates")}; it stays off, as not every update flushes caches. A ramp of a
minute for the engine that comes back (`ramp_s = 60`): spread {spread_at("ramp", "one lost")} instead of
{spread_at(TRIMTAB, "one lost")}, durations {say.against("ramp", TRIMTAB, durations, "one lost")}. It stays off; but
what is cold here is a cache, and an engine that compiles its kernels with its first requests may need it.

**Where a peer does better.** Where memory is short on every engine (saturated), smg's cache-aware policy has durations
{versus_off("cache-aware, smg", "saturated")} against routing off, trimtab {versus_off(TRIMTAB, "saturated")}; its
makespan is {say.against("cache-aware, smg", TRIMTAB, makespan, "saturated")} of trimtab's. It puts the samples of a
task id together, whose prompts then lie in memory once. trimtab does not know which sessions share a prompt."""
    return "\n\n".join(
        textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
        for paragraph in text.split("\n\n")
    )


class _Sentences:
    """Numbers for sentences; the scenario is the reference shape unless named."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def spread_at(self, policy: str, scenario: str = REFERENCE) -> str:
        value = estimate(column(self._results[scenario][policy], spread))
        return f"{value.mean:.3f} ± {value.half:.3f}"

    def durations_against_off(self, policy: str, scenario: str = REFERENCE) -> str:
        return self.against(policy, OFF, durations, scenario)

    def against(self, policy: str, base: str, of: Callable[[Figures], float], scenario: str = REFERENCE) -> str:
        policies = self._results[scenario]
        return signed(change(column(policies[policy], of), column(policies[base], of)))

    def moved(self, policy: str) -> float:
        return statistics.fmean(run.moved for run in self._results[REFERENCE][policy])

    def cached(self, policy: str) -> str:
        return f"{statistics.fmean(run.cached for run in self._results[REFERENCE][policy]):.1%}"

    def turns(self) -> float:
        """Of one run, in the mean."""
        seeds = range(len(self._results[REFERENCE][TRIMTAB]))
        works = [generate(SCENARIOS[REFERENCE].workload, seed) for seed in seeds]
        return statistics.fmean(sum(len(plan.turns) for plan in work.sessions) for work in works)
