"""Tensors inside the calls: which calls an engine gets, and what its row says when one of them fails.

The engines here are lists of calls: the simulated engine takes no tensors, and the real one is asked in ``tests/e2e``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.manager.weights.test_payload import Fake
from trimtab import InvalidRequest, Pool
from trimtab_manager.engine.errors import Ambiguous, Refused
from trimtab_manager.weights import Tensors, TensorSpec, payload
from trimtab_manager.weights.rows import Row
from trimtab_manager.weights.transfer.tensor import TensorTransfer

if TYPE_CHECKING:
    from trimtab import Backend
    from trimtab_manager.engine.client import EngineClient

TENSORS = {"a": Fake((4,)), "b": Fake((4,)), "c": Fake((4,))}
MANIFEST = {name: TensorSpec((4,), "float32") for name in TENSORS}
OPEN = Refused("e", "POST /begin_weight_update", 400, "a weight-update session is already open; call end first")
MISSING = Refused("e", "POST /begin_weight_update", 404, "Not Found")
CLOSED = Refused("e", "POST /end_weight_update", 400, "no weight-update session is open; call begin first")
LOST = Ambiguous("e", "POST /x", "was sent, and the answer broke off")


@dataclass
class Info:
    """What a server says of its ranks."""

    tp_size: int


@dataclass
class Engine:
    """An engine that notes its calls, and fails them as told."""

    ranks: int = 1
    failures: dict[str, list[Exception]] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    timeout_s: float = 5.0

    def _call(self, name: str, *facts: Any) -> None:
        self.calls.append((name, *facts) if facts else name)
        if self.failures.get(name):
            raise self.failures[name].pop(0)

    async def server_info(self) -> Info:
        """Its ranks."""
        if self.failures.get("ranks"):
            raise self.failures["ranks"].pop(0)
        return Info(self.ranks)

    async def begin_weight_update(self, **_: object) -> None:
        """Noted."""
        self._call("begin")

    async def end_weight_update(self, **_: object) -> None:
        """Noted."""
        self._call("end")

    async def update_from_tensor(self, texts: list[str], version: str | None, *, flush: bool, **_: object) -> None:
        """Noted, with what it got and the label."""
        self._call("tensor", texts, version, flush)


@dataclass(frozen=True)
class Member:
    """An engine of an update."""

    id: str
    backend: Backend
    client: EngineClient
    serves: bool = True


@pytest.fixture(autouse=True)
def plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is sent as the names in it: there is no torch here."""
    monkeypatch.setattr(payload, "serialize", lambda bucket: "+".join(name for name, _ in bucket))


async def send(*engines: Engine) -> list[Row]:
    """Send three tensors in two buckets, as version 7."""
    pool = Pool()
    members = [
        Member(f"e{number}", pool.add_backend(f"127.0.0.1:{number + 1}"), cast("EngineClient", engine))
        for number, engine in enumerate(engines)
    ]
    rows = [Row(member) for member in members]
    transfer = TensorTransfer(Tensors(TENSORS, bucket_bytes=32, manifest=MANIFEST))
    await transfer.prepare(members)
    await transfer.send(rows, 7, flush=False, deadline_s=5)
    await transfer.close()
    return rows


async def test_only_the_last_bucket_carries_the_label() -> None:
    """Whoever reads the label in between, or after a failure, sees the old one."""
    engine, wide = Engine(), Engine(ranks=2)
    rows = await send(engine, wide)
    assert engine.calls == ["begin", ("tensor", ["a+b"], None, False), ("tensor", ["c"], "7", False), "end"]
    assert wide.calls[1] == ("tensor", ["a+b", "a+b"], None, False)
    assert [(row.status, row.transfer) for row in rows] == [("ok", "done")] * 2


async def test_a_session_that_somebody_left_open_is_begun_anew() -> None:
    """A controller died in the middle of an update."""
    engine = Engine(failures={"begin": [OPEN]})
    (row,) = await send(engine)
    assert engine.calls[:3] == ["begin", "end", "begin"]
    assert row.transfer == "done"


async def test_a_server_without_sessions() -> None:
    """Older ones take tensors at any time."""
    engine = Engine(failures={"begin": [MISSING]})
    (row,) = await send(engine)
    assert [call if isinstance(call, str) else call[0] for call in engine.calls] == ["begin", "tensor", "tensor"]
    assert row.transfer == "done"


async def test_a_lost_answer_to_the_end_of_a_session() -> None:
    """It is asked again, and that none is open is as good as yes."""
    engine = Engine(failures={"end": [LOST, CLOSED]})
    (row,) = await send(engine)
    assert engine.calls[-2:] == ["end", "end"]
    assert (row.status, row.transfer) == ("ok", "done")


async def test_an_engine_that_fails_in_a_bucket_gets_no_more() -> None:
    """It has some of the tensors, so its weights are in doubt; the others go on."""
    failing, fine = Engine(failures={"tensor": [LOST]}), Engine()
    rows = await send(failing, fine)
    assert [call if isinstance(call, str) else call[0] for call in failing.calls] == ["begin", "tensor"]
    assert [(row.status, row.transfer) for row in rows] == [("timeout", "unknown"), ("ok", "done")]
    assert not rows[0].intact


async def test_ranks_are_never_guessed() -> None:
    """An engine that did not say how many it has gets no tensor: it would die of a list of the wrong length."""
    silent, fine = Engine(ranks=2, failures={"ranks": [LOST]}), Engine(ranks=2)
    rows = await send(silent, fine)
    assert silent.calls == []
    assert [(row.status, row.intact, row.step) for row in rows] == [("error", True, "ranks"), ("ok", False, None)]


async def test_tensors_that_do_not_fit_reach_nobody() -> None:
    """The comparison comes first."""
    transfer = TensorTransfer(Tensors({"a": Fake((5,))}, manifest=MANIFEST))
    with pytest.raises(InvalidRequest, match=r"2 missing: b, c; 1 of another shape or type: a"):
        await transfer.prepare([])
