"""Compares three books that were kept apart: the clients', the gateway's and the engines' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Counts", "find_disagreements", "find_moves"]


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


def find_moves(sessions: Mapping[str, Collection[str]], moved: Collection[str]) -> list[str]:
    """Return one line per session that more than one engine has seen, and that no client saw move.

    Args:
        sessions: Keys of the sessions that each engine has a record of, by engine id.
        moved: Keys of the sessions that clients saw move.
    """
    seen: dict[str, list[str]] = {}
    for engine, keys in sessions.items():
        for key in keys:
            seen.setdefault(key, []).append(engine)
    return [
        f"session {key} ran on {' and '.join(engines)}, and its client did not see it"
        for key, engines in seen.items()
        if len(engines) > 1 and key not in moved
    ]


def _tell(counts: Counts | None) -> str:
    """Return counts in words."""
    if counts is None:
        return "nothing"
    return f"{counts.requests} requests, {counts.output_tokens} tokens"
