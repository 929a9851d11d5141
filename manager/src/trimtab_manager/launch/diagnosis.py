"""Why an engine did not start, in words: one shape of message per cause, each with all the evidence there is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_manager.launch.types import Exit, LaunchRequest

EVIDENCE_LINES = 50
_IN_USE = re.compile(
    r"address already in use|EADDRINUSE|errno.? ?98\b|port \S* ?is already in use|port is taken", re.IGNORECASE
)


@dataclass(frozen=True)
class Failure:
    """A start that failed.

    Attributes:
        request: What should have run.
        exit: How a process ended; None: the deadline passed.
        elapsed_s: Since the processes were started.
        health: What ``GET /health`` last said.
        log_tail: The end of the logs.
        facts: The handle's facts: commands, pids, ports, logs.
    """

    request: LaunchRequest
    exit: Exit | None
    elapsed_s: float
    health: str
    log_tail: str
    facts: Mapping[str, Any]

    @property
    def port_was_taken(self) -> bool:
        """Whether it ended because a port is somebody else's: another block helps."""
        return self.exit is not None and _IN_USE.search(self.exit.evidence or self.log_tail) is not None

    def __str__(self) -> str:
        """The whole message."""
        who = f"{self.request.engine_id} (generation {self.request.generation})"
        lines = [f"{who} did not start: {self._what()}. {self._next_step()}"]
        lines += [f"  {name}: {_shown(value)}" for name, value in self.facts.items()]
        evidence = (self.exit.evidence if self.exit is not None else "") or self.log_tail
        if evidence:
            lines.append(f"  the last lines of its log:\n{evidence}")
        else:
            lines.append("  its log is empty")
        return "\n".join(lines)

    def _what(self) -> str:
        if self.exit is None:
            return f"it was not healthy within {self.elapsed_s:.1f} s; GET /health last said: {self.health}"
        return f"{self.exit} after {self.elapsed_s:.1f} s"

    def _next_step(self) -> str:
        if self.exit is None:
            return (
                "If the log shows that it still loads, raise the start deadline; else the last lines say where it hangs"
            )
        if self.exit.signal == "SIGKILL":
            return "Somebody killed it; if nobody did, it was the kernel for want of memory: see dmesg"
        if self.exit.signal is not None:
            return "The lines below, or a core file, say why"
        return "The lines below say why"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
