"""Weights of engines that come later or wake up: where they come from, and when there is no way."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from trimtab import Pool
from trimtab_manager.engine.errors import Refused
from trimtab_manager.fleet.catch_up import CatchUp, CatchUpError
from trimtab_manager.weights import FromDisk, Label

if TYPE_CHECKING:
    from trimtab_manager.fleet import Replica


@dataclass
class Stub:
    """An engine with a label and a path, which remembers what it was told. It is its own client, too."""

    version: str = "default"
    survives: bool = True
    refuses: bool = False
    is_deaf: bool = False
    id: str = "policy/0"
    loaded: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = self
        self.engine = SimpleNamespace(capabilities=SimpleNamespace(weights_survive_release=self.survives))

    async def model_info(self) -> Any:
        """Its label."""
        return SimpleNamespace(weight_version=self.version)

    async def update_from_disk(self, path: str, version: str, **_: object) -> None:
        """Load, or refuse, or say yes and do nothing."""
        if self.refuses:
            raise Refused(self.id, "POST /update_weights_from_disk", 400, "no such path")
        self.loaded.append((path, version))
        if not self.is_deaf:
            self.version = version


def catch_up(version: int | None) -> CatchUp:
    """Of a model with this published version."""
    pool = Pool("rollout/policy")
    if version is not None:
        pool.publish("first", version)
    return CatchUp(pool, "models/start", resync=None, timeout_s=1)


def as_replica(stub: Stub) -> Replica:
    """For the type checker."""
    return cast("Replica", stub)


async def test_a_newcomer_loads_what_was_published_last() -> None:
    """From the path of that update; one that says to run it already is asked for nothing."""
    known, engine = catch_up(7), Stub()
    known.note(7, FromDisk("models/seven"))
    assert await known.bring(as_replica(engine)) == 7
    assert await known.bring(as_replica(engine)) == 7
    assert engine.loaded == [("models/seven", "7")]
    assert await catch_up(None).bring(as_replica(Stub())) is None


async def test_a_path_of_another_version_is_no_way() -> None:
    """Since then weights were published that are on no disk: the newcomer has to wait."""
    known, engine = catch_up(8), Stub()
    known.note(7, FromDisk("models/seven"))
    assert await known.bring(as_replica(engine)) is None
    known.note(8, Label())
    assert await known.bring(as_replica(engine)) is None
    assert engine.loaded == []


@pytest.mark.parametrize(
    ("engine", "words"),
    [(Stub(refuses=True), "version 7 could not be loaded: .* was refused with 400"), (Stub(is_deaf=True), "not say")],
    ids=["refused", "deaf"],
)
async def test_a_way_that_fails_says_how(engine: Stub, words: str) -> None:
    """The engine's answer, or its label after it."""
    known = catch_up(7)
    known.note(7, FromDisk("models/seven"))
    with pytest.raises(CatchUpError, match=words):
        await known.bring(as_replica(engine))


async def test_weights_that_survive_a_sleep_are_left_alone() -> None:
    """Of trained and static models alike."""
    for version, engine in ((7, Stub("7")), (None, Stub())):
        await catch_up(version).restore(as_replica(engine))
        assert engine.loaded == []


async def test_lost_weights_are_loaded_again_whatever_the_label_says() -> None:
    """A label outlives the numbers: trained models load the last update, static ones what they started with."""
    known, engine = catch_up(7), Stub("7", survives=False)
    known.note(7, FromDisk("models/seven"))
    await known.restore(as_replica(engine))
    assert engine.loaded == [("models/seven", "7")]
    static = Stub(survives=False)
    await catch_up(None).restore(as_replica(static))
    assert static.loaded == [("models/start", "default")]


async def test_lost_weights_that_are_nowhere_are_an_error_with_the_way_out() -> None:
    """Only an update of the trainer brings them back, while the rest of the memory is still out."""
    with pytest.raises(CatchUpError, match="nobody here can send it version 7; update the model now"):
        await catch_up(7).restore(as_replica(Stub("7", survives=False)))
