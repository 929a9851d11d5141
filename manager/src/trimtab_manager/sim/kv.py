"""The KV cache: a radix tree of token sequences with a capacity, locks and least-recently-used eviction.

SGLang shares the KV entries of common prefixes between requests and keeps them after a request ends. What a router can
observe of that is ``cached_tokens``: how much of a prompt was already there. This is the same structure without
tensors.

Sequences are ``str``: one code point per token id. Slicing, comparing and hashing a long prompt then runs in C and
costs one to four bytes per token; a list of ints would make a 30k-token turn cost milliseconds.

Complexity: match and insert take O(length) character work and O(depth) steps; eviction is O(nodes) to find the leaves,
paid only when the cache is full.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count


@dataclass(eq=False)
class Node:
    """One edge of the tree: ``segment`` follows the sequence of ``parent``."""

    segment: str
    parent: Node | None
    children: dict[str, Node] = field(default_factory=dict)
    locks: int = 0
    last_used: int = 0


@dataclass(frozen=True)
class KvStatistics:
    """Tokens by state; ``capacity == available + evictable + used``."""

    capacity: int
    used: int
    evictable: int

    @property
    def available(self) -> int:
        """Tokens that nothing occupies."""
        return self.capacity - self.used - self.evictable


class KvCache:
    """Prefix cache plus the tokens that running requests hold beside it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._root = Node("", None)
        self._tree_tokens = 0
        self._locked_tokens = 0
        self._private_tokens = 0
        self._ticks = count(1)

    def statistics(self) -> KvStatistics:
        """A frozen snapshot."""
        used = self._locked_tokens + self._private_tokens
        return KvStatistics(capacity=self._capacity, used=used, evictable=self._tree_tokens - self._locked_tokens)

    def match(self, tokens: str) -> tuple[int, Node]:
        """Longest cached prefix: its length and the node it ends at (split so that it ends there exactly)."""
        node, position, now = self._root, 0, next(self._ticks)
        while position < len(tokens):
            child = node.children.get(tokens[position])
            if child is None:
                break
            child.last_used = now
            length = _common_prefix(child.segment, tokens, position)
            if length < len(child.segment):
                child = self._split(child, length)
            node, position = child, position + length
        return position, node

    def lock(self, node: Node) -> None:
        """Keep ``node`` and everything above it from eviction until ``unlock``."""
        step: Node | None = node
        while step is not None:
            if step.locks == 0:
                self._locked_tokens += len(step.segment)
            step.locks += 1
            step = step.parent

    def unlock(self, node: Node) -> None:
        """Undo one ``lock``."""
        step: Node | None = node
        while step is not None:
            step.locks -= 1
            if step.locks == 0:
                self._locked_tokens -= len(step.segment)
            step = step.parent

    def allocate(self, tokens: int) -> bool:
        """Reserve tokens for a running request, evicting cached ones as needed. ``False``: not even then."""
        statistics = self.statistics()
        if tokens > statistics.available + statistics.evictable:
            return False
        if tokens > statistics.available:
            self._evict(tokens - statistics.available)
        self._private_tokens += tokens
        return True

    def free(self, tokens: int) -> None:
        """Give reserved tokens back."""
        self._private_tokens -= tokens

    def insert(self, tokens: str) -> None:
        """Cache a finished sequence. What does not fit, even after eviction, is not cached."""
        length, node = self.match(tokens)
        rest = tokens[length:]
        if not rest:
            return
        self.lock(node)  # eviction must not remove the node that the new leaf hangs on
        fits = self.allocate(len(rest))
        self.unlock(node)
        if fits:
            self.free(len(rest))
            leaf = Node(rest, node, last_used=next(self._ticks))
            node.children[rest[0]] = leaf
            self._tree_tokens += len(rest)

    def flush(self) -> None:
        """Forget every cached prefix. Only for an engine on which nothing runs."""
        self._root = Node("", None)
        self._tree_tokens = 0
        self._locked_tokens = 0

    def _split(self, child: Node, length: int) -> Node:
        upper = Node(child.segment[:length], child.parent, locks=child.locks, last_used=child.last_used)
        child.segment = child.segment[length:]
        upper.children[child.segment[0]] = child
        if child.parent is not None:
            child.parent.children[upper.segment[0]] = upper
        child.parent = upper
        return upper

    def _evict(self, tokens: int) -> None:
        leaves = [(leaf.last_used, id(leaf), leaf) for leaf in self._leaves()]
        heapq.heapify(leaves)
        while tokens > 0 and leaves:
            _, _, leaf = heapq.heappop(leaves)
            parent = leaf.parent
            if parent is None:
                continue
            del parent.children[leaf.segment[0]]
            self._tree_tokens -= len(leaf.segment)
            tokens -= len(leaf.segment)
            if not parent.children and parent.locks == 0 and parent is not self._root:
                heapq.heappush(leaves, (parent.last_used, id(parent), parent))

    def _leaves(self) -> list[Node]:
        found: list[Node] = []
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            elif node.locks == 0 and node is not self._root:
                found.append(node)
        return found


def _common_prefix(segment: str, tokens: str, start: int) -> int:
    """Length of the common prefix of ``segment`` and ``tokens[start:]``, by bisection over C comparisons."""
    if tokens.startswith(segment, start):
        return len(segment)
    low, high = 0, min(len(segment), len(tokens) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens.startswith(segment[:middle], start):
            low = middle
        else:
            high = middle - 1
    return low
