"""What the demo shows while it runs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from trimtab.cli.demo.frame import EngineRow, Frame
from trimtab.cli.demo.view import plain_line, render, watching
from trimtab.cli.demo.words import count, listed

ROWS = tuple(
    EngineRow(
        engine=f"sim-{index}",
        capacity=capacity,
        outstanding=capacity - 1,
        sessions=capacity * 2,
        output_tokens=10_000 * capacity,
        cached_share=0.83,
        state="up",
    )
    for index, capacity in enumerate((16, 8, 8, 4))
)
FRAME = Frame(
    elapsed_s=12.34,
    total_s=20,
    admitting=True,
    rows=ROWS,
    sessions_live=54,
    sessions_done=1_234,
    requests=12_345,
    errors=0,
    moves=0,
)


def shown(frame: Frame, width: int) -> list[str]:
    """The table's lines on a console of this width, without colour."""
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(render(frame, console.width))
    return capture.get().splitlines()


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    """Nothing is cut or wrapped: one line per engine, with every number."""
    lines = shown(FRAME, 80)
    rows = [line for line in lines if line.startswith("sim-")]
    assert len(rows) == 4
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "".join(lines)
    assert rows[0].split()[0:2] == ["sim-0", "16"]
    for word in ("15/16", "32", "160,000", "10,000", "+0.0%", "83%", "up"):
        assert word in rows[0]


def test_the_plain_line_says_the_same_in_words() -> None:
    """Without a terminal a frame is one line of text."""
    line = plain_line(replace(FRAME, errors=1, moves=2))
    assert "\n" not in line
    for words in ("12.3 s", "sim-0 15/16", "54 sessions live, 1,234 done", "1,000/s", "1 error, 2 moved"):
        assert words in line


def test_evenness_is_shown_per_capacity() -> None:
    """An engine that did more than its share carries a plus, and the fleet's variation is no longer zero."""
    busy = replace(ROWS[0], output_tokens=200_000)
    frame = replace(FRAME, rows=(busy, *ROWS[1:]))
    assert "+17.6%" in shown(frame, 100)[2]
    assert "vary by 10.2%" in plain_line(frame)
    assert "vary by 0.0%" in plain_line(FRAME)


def test_a_frame_before_the_first_request_can_be_shown() -> None:
    """Nothing divides by zero at the start."""
    idle = tuple(replace(row, output_tokens=0, outstanding=0) for row in ROWS)
    start = replace(FRAME, elapsed_s=0.0, rows=idle, requests=0)
    assert "0 requests, 0/s" in plain_line(start)
    assert shown(start, 80)


@pytest.mark.parametrize("terminal", [True, False])
async def test_watching_shows_the_last_frame_when_it_ends(terminal: bool) -> None:
    """However short the run was, its end is on the screen; off a terminal there are no control sequences."""
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=terminal)
    async with watching(console, lambda: FRAME):
        pass
    assert "1,234 done" in out.getvalue()
    assert ("\x1b[" in out.getvalue()) == terminal


def test_small_english() -> None:
    """Counts agree with their nouns and lists have one and."""
    assert [count(0, "error"), count(1, "error"), count(1_000, "error")] == ["0 errors", "1 error", "1,000 errors"]
    assert [listed(["8"]), listed(["8", "4"]), listed(["8", "4", "2"])] == ["8", "8 and 4", "8, 4 and 2"]
