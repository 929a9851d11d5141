"""The prefix cache: a radix tree with a capacity."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab_manager.sim.kv import KvCache, KvStatistics

TEXTS = st.text(alphabet="abc", max_size=12)


def cached(cache: KvCache, tokens: str) -> int:
    """Length of the cached prefix."""
    return cache.match(tokens)[0]


def test_the_longest_common_prefix_is_found() -> None:
    """Within an edge, across edges, and nothing."""
    cache = KvCache(100)
    cache.insert("hello world")
    cache.insert("hello there")
    assert cached(cache, "hello world!") == 11
    assert cached(cache, "hello the") == 9
    assert cached(cache, "help") == 3
    assert cached(cache, "world") == 0
    assert cache.statistics() == KvStatistics(capacity=100, used=0, evictable=len("hello world" + "there"))


def test_the_least_recently_used_leaf_goes_first() -> None:
    """What was matched lately stays."""
    cache = KvCache(12)
    cache.insert("aaaa")
    cache.insert("bbbb")
    cache.insert("cccc")
    cached(cache, "aaaa")
    cache.insert("dddd")
    assert [cached(cache, text * 4) for text in "abcd"] == [4, 0, 4, 4]


def test_what_is_locked_stays() -> None:
    """A running request's prefix is not evicted, and counts as used."""
    cache = KvCache(8)
    cache.insert("aaaa")
    _, node = cache.match("aaaa")
    cache.lock(node)
    cache.insert("bbbb")
    cache.insert("cccc")
    assert [cached(cache, text * 4) for text in "abc"] == [4, 0, 4]
    assert cache.statistics() == KvStatistics(capacity=8, used=4, evictable=4)
    cache.unlock(node)
    assert cache.statistics() == KvStatistics(capacity=8, used=0, evictable=8)


def test_a_split_keeps_the_lock() -> None:
    """Somebody else's shorter prefix divides a locked edge; unlocking frees both halves."""
    cache = KvCache(20)
    cache.insert("abcdef")
    _, node = cache.match("abcdef")
    cache.lock(node)
    cache.insert("abcxyz")
    assert cache.statistics().used == 6
    cache.unlock(node)
    assert cache.statistics() == KvStatistics(capacity=20, used=0, evictable=9)


def test_reservations_evict_and_are_refused_only_when_nothing_helps() -> None:
    """A running request takes room from the cache, not from other running requests."""
    cache = KvCache(10)
    cache.insert("abcdefgh")
    assert cache.allocate(6)
    assert cache.statistics().used == 6
    assert not cache.allocate(5)
    cache.free(6)
    assert cache.statistics().used == 0


def test_too_much_to_cache_is_not_cached() -> None:
    """Nothing breaks; what was there may be gone."""
    cache = KvCache(4)
    cache.insert("abcdefgh")
    assert cached(cache, "abcdefgh") == 0
    assert cache.statistics() == KvStatistics(capacity=4, used=0, evictable=0)


def test_flush_forgets_everything() -> None:
    """All of the capacity is available again."""
    cache = KvCache(10)
    cache.insert("abc")
    cache.flush()
    assert cached(cache, "abc") == 0
    assert cache.statistics().available == 10


@given(st.lists(TEXTS, max_size=20), TEXTS)
def test_a_match_is_the_longest_prefix_of_anything_inserted(texts: list[str], wanted: str) -> None:
    """With room for all, the tree answers like a plain list of sequences."""
    cache = KvCache(1_000)
    for text in texts:
        cache.insert(text)
    expected = max((length for length in range(len(wanted) + 1) if _inserted(texts, wanted[:length])), default=0)
    assert cached(cache, wanted) == expected


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=30), st.integers(1, 20))
def test_the_books_balance(steps: list[tuple[str, bool]], capacity: int) -> None:
    """Whatever is inserted and held, tokens never exceed the capacity, and nothing is used once nothing is held."""
    cache = KvCache(capacity)
    held = []
    for text, hold in steps:
        cache.insert(text)
        if hold:
            _, node = cache.match(text)
            cache.lock(node)
            held.append(node)
        statistics = cache.statistics()
        assert statistics.available >= 0
        assert statistics.used >= 0
        assert statistics.evictable >= 0
    for node in held:
        cache.unlock(node)
    assert cache.statistics().used == 0
    assert cache.allocate(capacity)


def _inserted(texts: list[str], prefix: str) -> bool:
    return not prefix or any(text.startswith(prefix) for text in texts)
