"""The running batch and its claim on the KV cache: who gets in, who is sent back, what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_manager.sim.kv import KvCache

if TYPE_CHECKING:
    from collections import deque

    from trimtab_manager.sim.execution import Execution


class Batch:
    """Up to ``size`` executions that share a KV cache of ``capacity`` tokens."""

    def __init__(self, capacity: int, size: int) -> None:
        self.kv = KvCache(capacity)
        self.running: list[Execution] = []
        self._size = size

    def admit(self, waiting: deque[Execution]) -> list[Execution]:
        """Move executions from the head of the queue into the batch while there is a place and memory for them."""
        admitted: list[Execution] = []
        while waiting and len(self.running) < self._size and self._claim(waiting[0]):
            execution = waiting.popleft()
            self.running.append(execution)
            admitted.append(execution)
        return admitted

    def share(self, execution: Execution) -> None:
        """After its prefill: put the prompt into the prefix cache, so that others can use it at once."""
        held = execution.node
        self.kv.free(execution.private_tokens)
        self.kv.insert(execution.sequence)
        length, execution.node = self.kv.match(execution.sequence)
        self.kv.lock(execution.node)
        execution.private_tokens = len(execution.sequence) - length
        self.kv.allocate(execution.private_tokens)
        if held is not None:
            self.kv.unlock(held)

    def make_room(self) -> list[Execution]:
        """Reserve one token for every running execution; who does not fit is retracted, the youngest first.

        Returns the retracted ones, youngest first. The last one running is never retracted: nothing could free memory
        for it, and a request longer than the cache is refused before it gets here.
        """
        retracted: list[Execution] = []
        for execution in list(self.running):
            if execution not in self.running:
                continue
            while not self.kv.allocate(1):
                if len(self.running) == 1:
                    break
                retracted.append(self._retract(self.running[-1]))
                if retracted[-1] is execution:
                    break
            else:
                execution.private_tokens += 1
        return retracted

    def retract_all(self) -> list[Execution]:
        """Send everybody back, in order of admission."""
        return [self._retract(execution) for execution in list(self.running)]

    def remove(self, execution: Execution) -> None:
        """It ended: its KV becomes evictable cache. The last token has no KV, since it was never fed back."""
        self.running.remove(execution)
        self._release(execution, keep=execution.sequence[:-1] if execution.tokens else execution.prompt)

    def _claim(self, execution: Execution) -> bool:
        # The last prompt token is always computed: the first output token comes from it.
        sequence = execution.sequence
        length, node = self.kv.match(sequence[:-1])
        self.kv.lock(node)
        statistics = self.kv.statistics()
        needed = len(sequence) - length
        reserve = len(self.running) + 1
        if needed + (reserve if self.running else 0) > statistics.available + statistics.evictable:
            self.kv.unlock(node)
            return False
        self.kv.allocate(needed)
        execution.node, execution.private_tokens = node, needed
        if not execution.retractions:
            execution.cached_tokens = length
        return True

    def _retract(self, execution: Execution) -> Execution:
        self.running.remove(execution)
        self._release(execution, keep="")
        execution.retractions += 1
        return execution

    def _release(self, execution: Execution, *, keep: str) -> None:
        self.kv.free(execution.private_tokens)
        execution.private_tokens = 0
        self.kv.insert(keep)
        if execution.node is not None:
            self.kv.unlock(execution.node)
            execution.node = None
