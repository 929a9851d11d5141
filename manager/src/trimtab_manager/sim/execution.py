"""One execution: a prompt on its way to an output, and everything that is reported about it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab_manager.sim.tokens import END_OF_TEXT, Detokenizer, Sampler, fingerprint, pack, token_text

if TYPE_CHECKING:
    import asyncio

    from trimtab_manager.sim.kv import Node
    from trimtab_manager.sim.sampling import SamplingParams

Finish = dict[str, Any]
"""SGLang's ``finish_reason``: ``type`` is ``length``, ``stop`` or ``abort``."""

ABORTED: Finish = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
ABORTED_IN_QUEUE: Finish = {"type": "abort", "message": "Abort in waiting queue"}


@dataclass
class LogprobRequest:
    """What to report about probabilities; ``None`` in an execution means nothing."""

    start: int = -1
    top: int = 0
    token_ids: tuple[int, ...] | None = None
    with_text: bool = False


@dataclass
class Times:
    """Wall-clock moments in seconds since the epoch; 0 means not yet."""

    received: float = field(default_factory=time.time)
    dispatched: float = 0.0
    forwarded: float = 0.0
    prefilled: float = 0.0
    finished: float = 0.0


@dataclass(eq=False)
class Execution:
    """State of one request in the engine.

    ``prompt`` is packed (one code point per token id). ``changed`` is set whenever there is something to send; the
    executions of a batch share it.
    """

    rid: str
    prompt: str
    params: SamplingParams
    changed: asyncio.Event
    stream: bool = False
    logprobs: LogprobRequest | None = None
    session: str | None = None

    tokens: list[int] = field(default_factory=list)
    token_logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[list[tuple[float, int]]] = field(default_factory=list)
    spans: list[tuple[str, int]] = field(default_factory=list)
    finish: Finish | None = None
    retractions: int = 0
    cached_tokens: int = 0
    abort_sent: bool = False
    aborting: bool = False
    times: Times = field(default_factory=Times)
    max_new_tokens: int = 0
    node: Node | None = None
    private_tokens: int = 0
    text: str = ""
    text_is_cut: bool = False
    _sampler: Sampler | None = None
    _detokenizer: Detokenizer = field(default_factory=Detokenizer)

    def prepare(self, *, seed: int, ends_every: int, max_tokens: int) -> None:
        """Fix the output's length limit and its randomness, right before the scheduler gets it."""
        room = max(max_tokens - len(self.prompt), 0)
        wanted = self.params.max_new_tokens
        self.max_new_tokens = room if wanted is None else min(wanted, room)
        noise = 0
        if not self.params.greedy:
            chosen = self.params.sampling_seed
            noise = fingerprint(f"{seed}/{self.rid}" if chosen is None else f"seed/{chosen}")
        self._sampler = Sampler(noise=noise, ends_every=ends_every)
        self._sampler.read(self.prompt)

    @property
    def sequence(self) -> str:
        """Prompt and output so far, packed."""
        return self.prompt + pack(self.tokens)

    @property
    def in_queue_abort(self) -> bool:
        """Whether it was aborted before it ran: SGLang then reports almost nothing about it."""
        return self.finish is ABORTED_IN_QUEUE

    def append(self, weights: int, version: str) -> None:
        """One forward step of the model: the next token, unless the output is complete with it or before it."""
        if self._sampler is None:
            raise RuntimeError(f"{self.rid} was not prepared")
        if len(self.tokens) >= self.max_new_tokens:
            self.end({"type": "length", "length": len(self.tokens)})
            return
        long_enough = len(self.tokens) >= self.params.min_new_tokens
        token, value = self._sampler.draw(weights, may_end=long_enough and not self.params.ignore_eos)
        if not self.spans or self.spans[-1][0] != version:
            self.spans.append((version, len(self.tokens)))
        self.tokens.append(token)
        if self.logprobs is not None:
            self.token_logprobs.append(value)
            if self.logprobs.top:
                self.top_logprobs.append(self._sampler.alternatives(weights, token, value, self.logprobs.top))
        self._check(token, long_enough=long_enough)
        if self.stream:
            self.changed.set()

    def end(self, finish: Finish) -> None:
        """The output is complete. Further calls change nothing."""
        if self.finish is not None:
            return
        if not self.text_is_cut:
            self._detokenizer.finish()
            self.text = self._detokenizer.text
        self.finish = finish
        self.times.finished = time.time()
        self.changed.set()

    def refuse(self, message: str) -> None:
        """End as SGLang's scheduler refuses a request: as an abort of a bogus prompt, with one bogus token."""
        self.prompt, self.tokens, self.text, self.text_is_cut = "\0", [0], token_text(0), True
        if self.logprobs is not None:
            self.token_logprobs, self.top_logprobs = [0.0], [[(0.0, 0)]]
        self.end({"type": "abort", "message": message, "status_code": 400, "err_type": "BadRequestError"})

    def mark_dispatched(self) -> None:
        """It leaves for the scheduler's queue."""
        self.times.dispatched = time.time()

    def _check(self, token: int, *, long_enough: bool) -> None:
        if len(self.tokens) >= self.max_new_tokens:
            self._feed(token)
            self.end({"type": "length", "length": len(self.tokens)})
            return
        ends = token == END_OF_TEXT or token in self.params.stop_token_ids
        if ends and long_enough and not self.params.ignore_eos:
            if self.params.no_stop_trim:
                self._feed(token)
            self.end({"type": "stop", "matched": token})
            return
        before = len(self._detokenizer.text)
        self._feed(token)
        if long_enough:
            self._check_stop_strings(before)

    def _feed(self, token: int) -> None:
        self._detokenizer.feed(token)
        self.text = self._detokenizer.text

    def _check_stop_strings(self, before: int) -> None:
        for stop in self.params.stop:
            found = self.text.find(stop, max(before - len(stop), 0)) if stop else -1
            if found >= 0:
                self.text = self.text[: found + len(stop) if self.params.no_stop_trim else found]
                self.text_is_cut = True
                self.end({"type": "stop", "matched": stop})
                return
