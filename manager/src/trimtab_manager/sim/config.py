"""What a simulated engine can be told: one frozen, validated record."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_manager.sim.faults import Fault, is_quantity, is_whole

CODE_POINTS = 0x110000
"""Token sequences are kept as text, one code point per token id (see ``kv``), which bounds the vocabulary."""

FIRST_SPECIAL_ID = 256
MIN_VOCABULARY = 260


@dataclass(frozen=True, kw_only=True)
class SimConfig:
    """Configuration of one simulated engine. Durations are modelled seconds; ``time_scale`` turns them into real ones.

    Attributes:
        model_name: Served model name, until an update from disk renames it, as SGLang does.
        model_path: Path of the first weights. Equal paths mean equal weights, hence equal greedy output.
        max_running_requests: Size of the running batch; more requests wait in the queue.
        max_total_tokens: Size of the KV cache in tokens, shared by running requests and the prefix cache.
        context_length: Longest prompt plus output, in tokens.
        vocab_size: Token ids at or above it crash the engine, as they do the real one. 256 byte tokens and 4 special
            ones come first.
        prefill_tokens_per_s: Prompt tokens computed per second; tokens found in the prefix cache cost nothing.
        decode_step_s: Time of one decode step of a batch of one: every running request gains a token.
        decode_request_step_s: What each further request of the batch adds to a step.
        decode_kv_token_s: What each token of the contexts of the batch adds to a decode step.
        step_overhead_s: Fixed cost of a prefill batch.
        weight_load_s: Time that an update from disk takes once it may begin.
        time_scale: Real seconds per modelled second: 0.1 is ten times faster, 0 does not wait at all. It does not touch
            times that a caller names (``/flush_cache?timeout=``, ``/slow_down``, faults).
        seed: Seed of sampled (temperature > 0) output.
        ends_every: A token ends the text with a chance of one in ``ends_every`` unless ``ignore_eos`` is set.
        health_interval_s: How long ``/health`` takes when all is well.
        health_timeout_s: How long ``/health`` hangs before 503 when nothing is generated.
        pause_poll_s: How often a pause of mode ``abort`` looks whether the aborted requests are gone.
        keep_alive_s: Real seconds after which an idle connection is closed by the server, as uvicorn does.
        memory_saver: Whether it really gives memory back, as SGLang does on a GPU with ``--enable-memory-saver``: it
            then dies of a step without its memory and of a second release, and released weights are lost.
        api_key: When set, requests need ``Authorization: Bearer <key>``, except for health, readiness and metrics.
        faults: Faults armed from the start.
    """

    model_name: str = "sim"
    model_path: str = "sim://weights/0"
    max_running_requests: int = 32
    max_total_tokens: int = 262_144
    context_length: int = 32_768
    vocab_size: int = 320
    prefill_tokens_per_s: float = 20_000.0
    decode_step_s: float = 0.015
    decode_request_step_s: float = 0.0002
    decode_kv_token_s: float = 0.0
    step_overhead_s: float = 0.004
    weight_load_s: float = 0.5
    time_scale: float = 1.0
    seed: int = 0
    ends_every: int = 320
    health_interval_s: float = 1.0
    health_timeout_s: float = 20.0
    pause_poll_s: float = 1.0
    keep_alive_s: float = 5.0
    memory_saver: bool = False
    api_key: str | None = None
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Check every rule. Raises ``ValueError`` naming the field, its value and the rule."""
        for name in ("model_name", "model_path"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        for name in ("max_running_requests", "max_total_tokens", "context_length", "ends_every"):
            _check_count(name, getattr(self, name))
        _check_count("vocab_size", self.vocab_size)
        if not MIN_VOCABULARY <= self.vocab_size < CODE_POINTS:
            raise ValueError(f"vocab_size must be in [{MIN_VOCABULARY}, {CODE_POINTS}), got {self.vocab_size}")
        _check_seconds("prefill_tokens_per_s", self.prefill_tokens_per_s)
        if self.prefill_tokens_per_s == 0:
            raise ValueError("prefill_tokens_per_s must be positive, got 0")
        for name in ("decode_step_s", "decode_request_step_s", "decode_kv_token_s", "step_overhead_s", "weight_load_s"):
            _check_seconds(name, getattr(self, name))
        _check_seconds("time_scale", self.time_scale)
        for name in ("health_interval_s", "health_timeout_s", "pause_poll_s", "keep_alive_s"):
            _check_seconds(name, getattr(self, name))
        if self.api_key is not None and not self.api_key:
            raise ValueError("api_key must not be empty; leave it out to switch keys off")

    @property
    def max_request_tokens(self) -> int:
        """Prompt plus output of one request, at most: what both the context and the KV cache can hold."""
        return min(self.context_length, self.max_total_tokens) - 1

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt that is accepted (SGLang keeps five tokens for the output)."""
        return self.max_request_tokens - 5


def _check_count(name: str, value: object) -> None:
    if not is_whole(value, 1):
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")


def _check_seconds(name: str, value: object) -> None:
    if not is_quantity(value):
        raise ValueError(f"{name} must be a finite number, not negative, got {value!r}")
