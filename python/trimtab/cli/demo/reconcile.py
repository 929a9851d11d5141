"""Compares three books that were kept apart: the clients', the gateway's and the engines' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Counts", "find_disagreements"]


@dataclass(frozen=True)
class Counts:
    """What one party counted for one engine: finished requests, and tokens generated in them."""

    requests: int
    output_tokens: int


def find_disagreements(books: Mapping[str, Mapping[str, Counts]]) -> list[str]:
    """Return one line per engine on which the books differ; empty when they agree.

    Args:
        books: For each party, its counts by engine id.
    """
    engines = sorted({engine for book in books.values() for engine in book})
    lines = []
    for engine in engines:
        entries = {party: book.get(engine) for party, book in books.items()}
        if len(set(entries.values())) > 1:
            told = "; ".join(f"{party}: {_tell(counts)}" for party, counts in entries.items())
            lines.append(f"{engine}: the counts differ ({told})")
    return lines


def _tell(counts: Counts | None) -> str:
    """Return counts in words."""
    if counts is None:
        return "nothing"
    return f"{counts.requests} requests, {counts.output_tokens} tokens"
