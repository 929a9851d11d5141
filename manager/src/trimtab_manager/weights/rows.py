"""What became of an update on each engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trimtab.fleet import EngineResult

if TYPE_CHECKING:
    from trimtab_manager.weights.scope import Member

Status = Literal["ok", "error", "timeout"]
Outcome = Literal["none", "refused", "unknown", "done"]


@dataclass
class Row:
    """One engine in one update.

    Attributes:
        member: The engine.
        transfer: ``none``: nothing was sent, or it said no before it touched its weights; ``refused``: it said no, and
            its weights may have changed; ``unknown``: no answer; ``done``: it said yes.
        paused: Whether it is paused, or may be.
        status: ``ok`` while nothing went wrong.
        step: The step that went wrong.
        error: What went wrong, with the evidence.
        seconds: How long each of its steps took.
        confirmed: Whether it is proved to run the new version.
        doubt: Why nobody knows whether its transfer happened, while its version is about to tell.
        detail: Facts for the result.
    """

    member: Member
    transfer: Outcome = "none"
    paused: bool = False
    status: Status = "ok"
    step: str | None = None
    error: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    confirmed: bool = False
    doubt: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The engine's id."""
        return self.member.id

    @property
    def well(self) -> bool:
        """Whether it still takes part."""
        return self.status == "ok"

    @property
    def intact(self) -> bool:
        """Whether its weights are surely the old ones."""
        return self.transfer == "none"

    def fail(self, step: str, status: Status, error: str) -> None:
        """It takes part no more. The first cause stays."""
        if self.well:
            self.status, self.step, self.error = status, step, error
        self.confirmed = False

    def give_benefit_of_the_doubt(self) -> None:
        """Let it take part again, although the answer to its transfer is lost: its label will tell what happened."""
        self.doubt, self.error = self.error or "it was interrupted", None
        self.status, self.step = "ok", None

    def result(self, state: str) -> EngineResult:
        """Its row of the operation's result."""
        detail = {**self.detail, "steps_s": {name: round(taken, 6) for name, taken in self.seconds.items()}}
        if self.step is not None:
            detail["step"] = self.step
        return EngineResult(self.id, self.status, sum(self.seconds.values()), self.error, state, detail)
