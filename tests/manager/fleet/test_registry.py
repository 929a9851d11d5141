"""The registry: one immutable topology per role, swapped whole."""

from __future__ import annotations

import pytest

from trimtab_manager.fleet.registry import PublishedEngine, Registry


def engine(number: int, generation: int = 1) -> PublishedEngine:
    """An engine."""
    return PublishedEngine(f"policy/{number}", generation, f"http://10.0.0.{number}:30000", 8.0)


def test_a_batch_is_one_revision() -> None:
    """Two engines that come together, and one that goes, are one change; a reader's topology never changes."""
    registry = Registry(["policy", "judge"])
    before = registry.topology
    after = registry.publish("policy", add=[engine(0), engine(1)])
    assert (before.revision, before.models["policy"]) == (1, ())
    assert (after.revision, after.models["policy"]) == (2, (engine(0), engine(1)))
    assert after.models["judge"] == ()
    assert registry.publish("policy", add=[engine(2)], remove=["policy/0"]).revision == 3
    assert registry.topology.engine("policy/0") is None


def test_nothing_changed_is_no_revision() -> None:
    """Removing who is not there, or publishing who is, changes nothing."""
    registry = Registry(["policy"])
    published = registry.publish("policy", add=[engine(0)])
    assert registry.publish("policy", remove=["policy/7"]) is published
    assert registry.publish("policy", add=[engine(0)]) is published


def test_another_incarnation_replaces_the_one_before() -> None:
    """There is one engine per id."""
    registry = Registry(["policy"])
    registry.publish("policy", add=[engine(0)])
    assert registry.publish("policy", add=[engine(0, 2)]).models["policy"] == (engine(0, 2),)


def test_the_epoch_is_new_with_each_manager() -> None:
    """Revisions of different managers are not comparable, and say so."""
    assert Registry(["policy"]).topology.epoch != Registry(["policy"]).topology.epoch
    with pytest.raises(TypeError):
        Registry(["policy"]).topology.models["policy"] = ()  # type: ignore[index]  # what must not be possible
