"""How long each step of an update may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trimtab.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class UpdateDeadlines:
    """Seconds per step; each engine that is late in a step is left behind by the others.

    Attributes:
        exclusive_s: Waiting for another change of the model's engines to end, such as a recovery.
        drain_s: Until nothing is outstanding in the pool.
        idle_s: Until an engine says twice that nothing runs and nothing waits.
        pause_s: Pausing an engine that is idle.
        transfer_s: All tensors, or the whole checkpoint.
        flush_s: Emptying the KV cache, tries included.
        read_back_s: Asking for the version, and for checksums.
        resume_s: Ending the pause.
        verify_s: A probe prompt; it is as long as a short prefill takes.
    """

    exclusive_s: float = 60.0
    drain_s: float = 120.0
    idle_s: float = 10.0
    pause_s: float = 15.0
    transfer_s: float = 600.0
    flush_s: float = 30.0
    read_back_s: float = 30.0
    resume_s: float = 15.0
    verify_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse a deadline that has passed before it begins."""
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise InvalidRequest(f"{field.name} must be positive, got {getattr(self, field.name)}")
