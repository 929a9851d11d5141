"""What a simulated engine remembers: the prefix cache and KV memory, without tokens.

The simulated engine's cache is a radix tree of token sequences. Here the sequences are known to have three parts (what
all sessions share, what a task's sessions share, the session's own), so lengths are enough: one entry per session, one
per task. Eviction is least recently used first, and takes a session's latest segments first, as the leaves of the tree.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benches.balance.workload import SessionPlan


@dataclass(eq=False, slots=True)
class Entry:
    """A session's own part on one engine, beyond what it shares.

    Attributes:
        task: Its task.
        segments: Lengths of what was added to the tree at a time; the last one is evicted first.
        tokens: Their sum.
    """

    task: TaskEntry
    segments: list[int] = field(default_factory=list)
    tokens: int = 0

    def cut(self, tokens: int) -> int:
        """Drop whole segments from the end until ``tokens`` are gone; returns how many are."""
        gone = 0
        while gone < tokens and self.segments:
            gone += self.segments.pop()
        self.tokens -= gone
        return gone


@dataclass(eq=False, slots=True)
class TaskEntry:
    """What the sessions of a task share on one engine; it goes when none of them is there."""

    number: int
    tokens: int
    sessions: int = 0


class PrefixCache:
    """KV memory of one engine: what running requests hold, and what is kept while there is room."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        """Tokens of everything: running, idle, shared."""
        self.evictable = 0
        """Tokens of idle sessions."""
        self._shared = 0
        self._tasks: dict[int, TaskEntry] = {}
        self._entries: dict[SessionPlan, Entry] = {}
        self._idle: OrderedDict[SessionPlan, Entry] = OrderedDict()

    def cached(self, plan: SessionPlan, prompt: int) -> int:
        """How much of a prompt of this session is there; at least one token is always computed."""
        entry = self._entries.get(plan)
        if entry is not None:
            found = plan.shared_tokens + plan.task_tokens + entry.tokens
        elif plan.task in self._tasks:
            found = plan.shared_tokens + plan.task_tokens
        else:
            found = min(self._shared, plan.shared_tokens)
        return min(found, prompt - 1)

    def claim(self, plan: SessionPlan, needed: int, reserve: int) -> bool:
        """Make room for ``needed`` more tokens with ``reserve`` of slack; the session's own cache is then locked."""
        entry = self._idle.get(plan)
        own = 0 if entry is None else entry.tokens
        if self.used - self.evictable + own + needed + reserve > self.capacity:
            return False
        if entry is not None:
            del self._idle[plan]
            self.evictable -= own
        self.grow(needed)
        return True

    def grow(self, tokens: int) -> None:
        """Running requests hold ``tokens`` more; idle sessions make room."""
        self.used += tokens
        if self.used > self.capacity:
            self._evict(self.used - self.capacity)

    def share(self, plan: SessionPlan, prompt: int, private: int) -> None:
        """After the prefill of ``private`` tokens: the prompt is in the tree, and what others have there is freed."""
        self.used -= private
        entry = self._entries.get(plan)
        if entry is None:
            added = max(plan.shared_tokens - self._shared, 0)
            self._shared += added
            task = self._tasks.get(plan.task)
            if task is None:
                task = self._tasks[plan.task] = TaskEntry(plan.task, plan.task_tokens)
                added += plan.task_tokens
            task.sessions += 1
            entry = self._entries[plan] = Entry(task)
            self.used += added
        new = prompt - plan.shared_tokens - plan.task_tokens - entry.tokens
        if new > 0:
            entry.segments.append(new)
            entry.tokens += new
            self.used += new

    def release(self, plan: SessionPlan, generated: int, keep: int) -> None:
        """A request ended: of its ``generated`` tokens in memory ``keep`` become cache, as the rest of the session."""
        self.used -= generated - keep
        entry = self._entries[plan]
        if keep > 0:
            entry.segments.append(keep)
            entry.tokens += keep
        self._idle[plan] = entry
        self.evictable += entry.tokens

    def flush(self) -> None:
        """Forget everything. Only when nothing runs."""
        self.used = self.evictable = self._shared = 0
        self._tasks.clear()
        self._entries.clear()
        self._idle.clear()

    def _evict(self, tokens: int) -> None:
        while tokens > 0 and self._idle:
            plan, entry = next(iter(self._idle.items()))
            gone = entry.cut(tokens)
            self.used -= gone
            self.evictable -= gone
            tokens -= gone
            if not entry.segments:
                del self._idle[plan]
                del self._entries[plan]
                entry.task.sessions -= 1
                if entry.task.sessions == 0:
                    del self._tasks[entry.task.number]
                    self.used -= entry.task.tokens
                    tokens -= entry.task.tokens
