"""Errors of control calls. The class says what became of the call, and with that whether it may be sent again.

===============  ===================================================  =============================================
error            what happened                                        may the same call be sent again?
===============  ===================================================  =============================================
``Unreachable``  no connection: not a byte was sent                   yes, always
``Refused``      the engine, or a proxy before it, said no            when ``retryable`` (429, 502, 503)
``Ambiguous``    sent, and no answer says what became of it           only if doing it twice is harmless
``Deadline``     the same: no answer in time; it may yet happen       only if doing it twice is harmless
===============  ===================================================  =============================================

A 500 or 504 is ``Ambiguous``: SGLang answers 500 when a handler raised half-way, and a proxy 504 when it gave up
waiting for something that still runs. A refusal is not always without effect either: SGLang answers 400 to an update
whose weights were changed and whose flush was refused. Whoever updates weights therefore reads back what is there.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from trimtab.errors import TrimtabError

EVIDENCE_LIMIT = 500
"""Characters of an engine's words that a message repeats; a trace of pages would bury the message."""

Effect = Literal["none", "refused", "unknown"]


class ControlError(TrimtabError):
    """A control call did not succeed.

    Attributes:
        engine: Id of the engine, or its URL while it has none.
        call: The call, such as ``POST /pause_generation``.
        what: What went wrong.
        evidence: The last thing that was seen: an exception, or status and body.
        effect: ``none``: not sent; ``refused``: the engine said no; ``unknown``: nobody knows.
    """

    code: ClassVar[str] = "control_failed"
    effect: ClassVar[Effect] = "unknown"

    def __init__(self, engine: str, call: str, what: str, evidence: str = "", *, retryable: bool = False) -> None:
        self.engine = engine
        self.call = call
        self.what = what
        self.evidence = evidence[:EVIDENCE_LIMIT]
        self.retryable = retryable
        seen = f" ({self.evidence})" if self.evidence else ""
        super().__init__(f"engine {engine}: {call} {what}{seen}")


class Unreachable(ControlError):
    """No connection: the call was not sent."""

    code: ClassVar[str] = "engine_unreachable"
    effect: ClassVar[Effect] = "none"

    def __init__(self, engine: str, call: str, evidence: str) -> None:
        super().__init__(engine, call, "was not sent: no connection", evidence, retryable=True)


class Ambiguous(ControlError):
    """The call was sent, and no answer says what became of it."""

    code: ClassVar[str] = "control_ambiguous"


class Deadline(Ambiguous):
    """No answer within the call's deadline; what it asked for may still happen."""

    code: ClassVar[str] = "control_timeout"

    def __init__(self, engine: str, call: str, seconds: float) -> None:
        super().__init__(engine, call, f"was not answered within {seconds:g} s")


class Refused(ControlError):
    """The engine said no.

    Attributes:
        status: HTTP status.
        body: Its words, complete.
    """

    code: ClassVar[str] = "control_refused"
    effect: ClassVar[Effect] = "refused"

    def __init__(self, engine: str, call: str, status: int, body: str) -> None:
        super().__init__(engine, call, f"was refused with {status}", body.strip(), retryable=status in RETRYABLE)
        self.status = status
        self.body = body


RETRYABLE = frozenset({429, 502, 503})
"""Refusals that the same call may outlive: nobody did anything, and says so."""

UNCLEAR = frozenset({500, 504})
"""Answers after which the call may have had its effect."""


class Malformed(ControlError):
    """The engine answered 200 with something that is not the answer of SGLang."""

    code: ClassVar[str] = "engine_malformed"
    effect: ClassVar[Effect] = "unknown"


class MissingCapability(TrimtabError):
    """The engine does not serve what its model needs; the message names it, and the way out.

    Attributes:
        engine: Id of the engine.
        missing: What it lacks, such as ``POST /pause_generation``.
    """

    code: ClassVar[str] = "missing_capability"

    def __init__(self, engine: str, missing: tuple[str, ...], advice: str) -> None:
        self.engine = engine
        self.missing = missing
        super().__init__(f"engine {engine} does not serve {', '.join(missing)}; {advice}")


class IdentityChanged(TrimtabError):
    """Another server answers at the engine's address; the call was not sent."""

    code: ClassVar[str] = "identity_changed"


class NotIdle(TrimtabError):
    """At the deadline requests still ran or waited, by the router's count or the engine's; the message has both.

    Attributes:
        engine: Id of the engine.
        outstanding: Leases that are open on it.
        running: Requests that it says run.
        waiting: Requests that it says wait.
    """

    code: ClassVar[str] = "not_idle"
    retryable = True

    def __init__(self, message: str, *, engine: str, outstanding: int, running: int, waiting: int) -> None:
        super().__init__(message)
        self.engine = engine
        self.outstanding = outstanding
        self.running = running
        self.waiting = waiting


class FlushRefused(TrimtabError):
    """The engine refused to empty its cache until the deadline; the message has what it says runs and waits.

    Attributes:
        engine: Id of the engine.
        running: Requests that it says run.
        waiting: Requests that it says wait.
    """

    code: ClassVar[str] = "flush_refused"
    retryable = True

    def __init__(self, message: str, *, engine: str, running: int, waiting: int) -> None:
        super().__init__(message)
        self.engine = engine
        self.running = running
        self.waiting = waiting


class NotReady(TrimtabError):
    """The engine does not say that it is well; it stays out of routing."""

    code: ClassVar[str] = "not_ready"
    retryable = True


class Quarantined(TrimtabError):
    """Nobody knows what state the engine is in, or it cannot leave it: it serves nothing until it is replaced.

    Attributes:
        engine: Id of the engine.
    """

    code: ClassVar[str] = "engine_quarantined"

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(f"engine {engine} is quarantined: {reason}; replace it")
        self.engine = engine


class RestoreFailed(TrimtabError):
    """A woken engine did not get its weights back; it stays out of routing, and may be activated again.

    Attributes:
        engine: Id of the engine.
    """

    code: ClassVar[str] = "restore_failed"
    retryable = True

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(f"engine {engine} is awake without its weights: {reason}; activate it again, or replace it")
        self.engine = engine
