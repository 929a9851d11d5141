"""What is sent again, when, and how often."""

from __future__ import annotations

import pytest

from tests.manager.engine.kit import StepClock
from trimtab_manager.engine.errors import Ambiguous, ControlError, Deadline, NotIdle, Refused, Unreachable
from trimtab_manager.engine.limits import RetryPolicy
from trimtab_manager.engine.retry import repeated

POLICY = RetryPolicy(attempts=4, first_gap_s=1, growth=3, longest_gap_s=5)

NOT_SENT = Unreachable("e", "POST /x", "refused")
LOST = Ambiguous("e", "POST /x", "broke off")
LATE = Deadline("e", "POST /x", 1)
BUSY = Refused("e", "POST /x", 503, "busy")
WRONG = Refused("e", "POST /x", 400, "wrong")


class Call:
    """Fails with these errors, then succeeds."""

    def __init__(self, *errors: ControlError) -> None:
        self.errors = list(errors)
        self.sent = 0

    async def __call__(self) -> str:
        """Sends it once."""
        self.sent += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.mark.parametrize("error", [NOT_SENT, BUSY])
async def test_what_did_nothing_is_sent_again(error: ControlError) -> None:
    """With growing gaps; also a call that must not happen twice."""
    call, clock = Call(error, error, error), StepClock()
    assert await repeated(call, harmless_twice=False, policy=POLICY, clock=clock.clock) == "done"
    assert (call.sent, clock.slept) == (4, [1, 3, 5])


@pytest.mark.parametrize("error", [LOST, LATE])
@pytest.mark.parametrize("harmless", [True, False])
async def test_what_may_have_happened_is_sent_again_only_if_that_is_harmless(
    error: ControlError, harmless: bool
) -> None:
    """Nothing tells a repetition from a second order."""
    call, clock = Call(error), StepClock()
    if harmless:
        assert await repeated(call, harmless_twice=True, policy=POLICY, clock=clock.clock) == "done"
        assert call.sent == 2
    else:
        with pytest.raises(type(error)):
            await repeated(call, harmless_twice=False, policy=POLICY, clock=clock.clock)
        assert call.sent == 1


async def test_what_was_refused_is_not_sent_again() -> None:
    """Not even if it were harmless: the answer would be the same."""
    call = Call(WRONG)
    with pytest.raises(Refused):
        await repeated(call, harmless_twice=True, policy=POLICY, clock=StepClock().clock)
    assert call.sent == 1


async def test_repetition_is_bounded() -> None:
    """The last error is raised."""
    call = Call(*[BUSY] * 3, NOT_SENT, BUSY)
    with pytest.raises(Unreachable):
        await repeated(call, harmless_twice=True, policy=POLICY, clock=StepClock().clock)
    assert call.sent == 4


async def test_another_look_can_end_it() -> None:
    """Before each repetition, and never before the first call."""
    call = Call(BUSY, BUSY)

    async def recheck() -> None:
        raise NotIdle("busy again", engine="e", outstanding=0, running=1, waiting=0)

    with pytest.raises(NotIdle):
        await repeated(call, harmless_twice=False, policy=POLICY, recheck=recheck, clock=StepClock().clock)
    assert call.sent == 1
