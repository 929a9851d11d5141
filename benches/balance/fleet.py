"""The engines: how fast they are, how much they remember, and how many of which kind.

The numbers are those of the simulated engine's timing model for one replica of Qwen3-32B in bfloat16 on four H100 (the
model and cards of ``workload.DEEPSWE``), derived below from data sheets; they are rounded, not fitted. Engines share
their cards with the trainer, and have the limits of ``workload.AREAL_SWE``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab_manager.sim import SimConfig


@dataclass(frozen=True)
class EngineModel:
    """One replica. Times in seconds, sizes in tokens."""

    decode_step_s: float = 0.010
    """64 GB of weights over 4 x 3.35 TB/s at 70 % are 7 ms; launches and all-reduces make it 10."""

    decode_request_step_s: float = 0.00005
    """Compute of one more token of the batch: small, decoding is bound by memory."""

    decode_kv_token_s: float = 28e-9
    """A token of context has 64 layers x 2 x 8 heads x 128 x 2 bytes = 262 kB, read at 9.4 TB/s in every step."""

    prefill_tokens_per_s: float = 20_000.0
    """64 GFLOP per token over 4 x 989 TFLOP/s at 40 % are 25,000; attention takes the rest."""

    step_overhead_s: float = 0.004

    kv_tokens: int = 549_000
    """65 % of 320 GB, as in ``AREAL_SWE``, less the weights leaves 144 GB."""

    max_running: int = 128
    """Source: ``AREAL_SWE``."""

    speed: float = 1.0
    """Everything takes ``1 / speed`` as long: a throttled or disturbed machine."""

    def config(self, *, time_scale: float, context_tokens: int) -> SimConfig:
        """The simulated engine with these numbers."""
        return SimConfig(
            decode_step_s=self.decode_step_s / self.speed,
            decode_request_step_s=self.decode_request_step_s / self.speed,
            decode_kv_token_s=self.decode_kv_token_s / self.speed,
            prefill_tokens_per_s=self.prefill_tokens_per_s * self.speed,
            step_overhead_s=self.step_overhead_s / self.speed,
            max_total_tokens=self.kv_tokens,
            max_running_requests=self.max_running,
            context_length=context_tokens,
            time_scale=time_scale,
        )


TP4 = EngineModel()
"""The engine of the reference shape."""

TP4_ALONE = replace(TP4, kv_tokens=790_000)
"""It shares its memory with nobody: 85 % of 320 GB, less the weights."""

TP4_HALF = replace(TP4, kv_tokens=366_000)
"""The trainer keeps more: half of 320 GB, less the weights."""

TP8 = replace(
    TP4,
    decode_step_s=0.0065,
    decode_kv_token_s=14e-9,
    prefill_tokens_per_s=40_000.0,
    kv_tokens=1_340_000,
    max_running=256,
)
TP2 = replace(
    TP4,
    decode_step_s=0.017,
    decode_kv_token_s=56e-9,
    prefill_tokens_per_s=10_000.0,
    kv_tokens=152_000,
    max_running=64,
)
"""The same model on eight and on two of the same cards, by the same arithmetic: capacities 8 and 2."""


@dataclass(frozen=True)
class Replica:
    """One engine of the fleet.

    Attributes:
        model: Its speed and memory.
        capacity: What the router is told, in some unit that all share.
    """

    model: EngineModel
    capacity: float = 1.0


@dataclass(frozen=True)
class Outage:
    """One replica is gone from ``lost_s`` to ``back_s``; it comes back with an empty cache."""

    replica: int
    lost_s: float
    back_s: float


@dataclass(frozen=True)
class Fleet:
    """What the work runs on."""

    replicas: tuple[Replica, ...]
    outage: Outage | None = None
    publish_every_groups: int | None = None
    """After so many finished groups new weights are published: engines abort what runs, and forget their caches."""

    publish_pause_s: float = 15.0
    """How long nothing runs then: transfer of 64 GB to every replica, and resumption."""


def mixed(large: int, small: int) -> Fleet:
    """Engines on eight cards, with a capacity of 8, and engines on two, with 2."""
    return Fleet((*(Replica(TP8, 8.0) for _ in range(large)), *(Replica(TP2, 2.0) for _ in range(small))))


def even(replicas: int, model: EngineModel = TP4) -> Fleet:
    """Equal engines."""
    return Fleet(tuple(Replica(model) for _ in range(replicas)))
