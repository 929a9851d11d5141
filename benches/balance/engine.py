"""One simulated engine in virtual time, a jump at a time.

The simulated engine (``trimtab_manager.sim``) does a step at a time: a prefill of whatever can be admitted, or else one
decode of the whole batch. Between an admission and the next end of a request its decode steps are an arithmetic
progression, as every context grows by one token per step, so this engine does them all at once and lands on the same
instants. ``tests/benches/balance`` holds it to the simulated engine's own batch and cache, step by step.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING

from benches.balance.cache import PrefixCache

if TYPE_CHECKING:
    from benches.balance.fleet import EngineModel
    from benches.balance.workload import SessionPlan


class Request:
    """One turn on its way through an engine."""

    __slots__ = ("cached", "generated", "left", "output", "plan", "prompt", "turn", "uncached")

    def __init__(self, plan: SessionPlan, turn: int, prompt: int, output: int) -> None:
        self.plan = plan
        self.turn = turn
        self.prompt = prompt
        """Tokens to have in memory before the next one is generated: grows by what was generated before an abort."""
        self.output = output
        """Tokens to generate in all."""
        self.left = output
        """Of these, still to do when it was last admitted."""
        self.cached = -1
        """Prompt tokens found in the cache at its first admission."""
        self.uncached = 0
        """Tokens that its present prefill computes."""
        self.generated = 0


class Engine:
    """Continuous batching of one replica. The simulation calls ``submit``, and ``advance`` at ``due_s``."""

    def __init__(self, model: EngineModel) -> None:
        self._step_s = (model.decode_step_s - model.decode_request_step_s) / model.speed
        self._request_s = model.decode_request_step_s / model.speed
        self._token_s = model.decode_kv_token_s / model.speed
        self._prefill_token_s = 1.0 / (model.prefill_tokens_per_s * model.speed)
        self._overhead_s = model.step_overhead_s / model.speed
        self._most = model.max_running
        self.cache = PrefixCache(model.kv_tokens)
        self.waiting: deque[Request] = deque()
        self.due_s = math.inf
        """When ``advance`` is to be called."""
        self.busy_s = 0.0
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.retractions = 0
        self._ends: list[tuple[int, int, Request]] = []
        """Running requests by the decode step that ends them; ties in order of admission."""
        self._admitted = 0
        self._prefilling: list[Request] = []
        self._step = 0
        """Decode steps so far."""
        self._context = 0
        """Tokens of the contexts of the running requests."""
        self._from_s = 0.0
        """Start of the present work."""
        self._steps = 0
        """Decode steps of the present work; 0 while prefilling or idle."""
        self._blocked = False
        """Whether the head of the queue found no room when the present work began."""

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._ends) + len(self._prefilling)

    def submit(self, request: Request, now_s: float) -> None:
        """Queue a request. May bring ``due_s`` forward."""
        self.waiting.append(request)
        if self.due_s == math.inf:
            self._from_s = now_s
            self._begin()
        elif self._steps > 1 and not self._blocked:
            # Admission is looked at between steps: the present run of steps ends with the one that is under way.
            self._shorten(now_s)

    def advance(self) -> list[Request]:
        """Finish the present work and begin the next. Returns the requests that ended with it."""
        now_s = self.due_s
        self.busy_s += now_s - self._from_s
        ended = self._finish_prefill() if self._prefilling else self._finish_decode(self._steps)
        self._from_s = now_s
        self._begin()
        return ended

    def abort(self, now_s: float) -> list[Request]:
        """Stop at once: every request, waiting ones last. What was generated is theirs; the cache is lost."""
        if self._steps:
            elapsed = self._steps_until(now_s)
            self._progress(min(int(elapsed), self._steps - 1))
        if self.due_s != math.inf:
            self.busy_s += now_s - self._from_s
        running = [*self._prefilling, *(request for _, _, request in sorted(self._ends))]
        for end, _, request in self._ends:
            self._note(request, request.left - (end - self._step))
        stopped = [*running, *self.waiting]
        self._prefilling, self._ends, self._context, self._steps = [], [], 0, 0
        self.waiting.clear()
        self.cache.flush()
        self.due_s = math.inf
        return stopped

    # One piece of work after the other.

    def _begin(self) -> None:
        uncached = self._admit()
        if self._prefilling:
            self._steps = 0
            self.due_s = self._from_s + self._overhead_s + uncached * self._prefill_token_s
            return
        self._blocked = bool(self.waiting)
        while self._ends:
            batch = len(self._ends)
            steps = self._ends[0][0] - self._step
            room = self.cache.capacity - self.cache.used + self.cache.evictable
            if room >= batch * steps or batch == 1:
                break
            if room >= batch:
                steps = room // batch
                break
            self._retract()
        else:
            self._steps, self.due_s = 0, math.inf
            return
        self._steps = steps
        self.due_s = self._from_s + self._duration(steps)

    def _admit(self) -> int:
        uncached = 0
        while self.waiting:
            running = len(self._ends) + len(self._prefilling)
            if running >= self._most:
                break
            request = self.waiting[0]
            found = self.cache.cached(request.plan, request.prompt)
            needed = request.prompt - found
            if not self.cache.claim(request.plan, needed, running + 1 if running else 0):
                break
            self.waiting.popleft()
            self._prefilling.append(request)
            request.uncached = needed
            uncached += needed
            if request.cached < 0:
                request.cached = found
                self.prompt_tokens += request.prompt
                self.cached_tokens += found
        return uncached

    def _finish_prefill(self) -> list[Request]:
        ended = []
        for request in self._prefilling:
            self.cache.share(request.plan, request.prompt, request.uncached)
            self._admitted += 1
            if request.left == 1:
                self._note(request, 1)
                self.cache.release(request.plan, 0, 0)
                ended.append(request)
            else:
                # The first token comes with the prefill; it has no memory before the next step.
                heapq.heappush(self._ends, (self._step + request.left - 1, self._admitted, request))
                self._context += request.prompt + 1
        self._prefilling = []
        return ended

    def _finish_decode(self, steps: int) -> list[Request]:
        self._progress(steps)
        ended = []
        while self._ends and self._ends[0][0] == self._step:
            _, _, request = heapq.heappop(self._ends)
            # Every token but the last one has memory, and is kept.
            held = request.left - 1
            self._context -= request.prompt + request.left
            self._note(request, request.left)
            self.cache.release(request.plan, held, held)
            ended.append(request)
        return ended

    def _progress(self, steps: int) -> None:
        grown = steps * len(self._ends)
        self._step += steps
        self._context += grown
        self.cache.grow(grown)

    def _note(self, request: Request, tokens: int) -> None:
        """``tokens`` more of a request were generated since it was admitted."""
        request.generated += tokens
        request.left -= tokens
        request.prompt += tokens
        self.output_tokens += tokens

    def _retract(self) -> None:
        """The youngest goes back to the head of the queue; what it generated has to be computed again."""
        position = max(range(len(self._ends)), key=lambda index: self._ends[index][1])
        end, _, request = self._ends[position]
        self._ends[position] = self._ends[-1]
        self._ends.pop()
        heapq.heapify(self._ends)
        done = request.left - (end - self._step)
        self._context -= request.prompt + done
        self.cache.release(request.plan, done - 1, 0)
        self._note(request, done)
        self.waiting.appendleft(request)
        self._blocked = True
        self.retractions += 1

    # The arithmetic of a run of decode steps: the k-th of them reads context + k * batch tokens.

    def _duration(self, steps: int) -> float:
        batch = len(self._ends)
        fixed = self._step_s + batch * self._request_s + self._context * self._token_s
        return steps * (fixed + 0.5 * (steps - 1) * batch * self._token_s)

    def _steps_until(self, now_s: float) -> float:
        """How many steps, in part, have been done at ``now_s``."""
        batch = len(self._ends)
        half = 0.5 * batch * self._token_s
        fixed = self._step_s + batch * self._request_s + self._context * self._token_s - half
        elapsed = now_s - self._from_s
        if half == 0.0:
            return elapsed / fixed
        return (math.sqrt(fixed * fixed + 4.0 * half * elapsed) - fixed) / (2.0 * half)

    def _shorten(self, now_s: float) -> None:
        steps = max(math.ceil(self._steps_until(now_s)), 1)
        if steps < self._steps:
            self._steps = steps
            self.due_s = self._from_s + self._duration(steps)
