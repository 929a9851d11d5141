"""Shows the demo while it runs: a live table on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trimtab.cli.demo.words import count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rich.console import Console, RenderableType

    from trimtab.cli.demo.frame import EngineRow, Frame

__all__ = ["plain_line", "render", "watching"]

LIVE_PERIOD_S = 0.125
PLAIN_PERIOD_S = 2.0
MOST_CELLS = 100
STATE_STYLES = {"up": "green", "unproven": "yellow", "suspect": "yellow", "draining": "cyan", "down": "bold red"}


@contextlib.asynccontextmanager
async def watching(console: Console, read: Callable[[], Frame]) -> AsyncIterator[None]:
    """Show the frames that ``read`` returns for as long as the context is open, and the last one at its end."""
    if not console.is_terminal:
        async with _repeating(PLAIN_PERIOD_S, lambda: _print_line(console, read())):
            yield
        _print_line(console, read())
        return
    # Live would refresh from a thread of its own: the frames come from the event loop, so it does the refreshing too.
    with Live(render(read(), console.width), console=console, auto_refresh=False, vertical_overflow="visible") as live:
        try:
            async with _repeating(LIVE_PERIOD_S, lambda: live.update(render(read(), console.width), refresh=True)):
                yield
        finally:
            live.update(render(read(), console.width))


@contextlib.asynccontextmanager
async def _repeating(period_s: float, show: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``show`` every ``period_s`` seconds while the context is open."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(period_s)
            show()

    task = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _print_line(console: Console, frame: Frame) -> None:
    console.print(plain_line(frame), highlight=False, markup=False, soft_wrap=True)


def plain_line(frame: Frame) -> str:
    """Return a frame as one line of plain text."""
    load = " ".join(f"{row.engine} {row.outstanding}/{row.capacity:g}" for row in frame.rows)
    return f"{frame.elapsed_s:5.1f} s | {load} | {_progress(frame)} | {_evenness(frame)} | {_faults(frame)}"


def render(frame: Frame, width: int) -> RenderableType:
    """Return a frame as a table of the engines, a time bar and a line of totals, at most ``width`` cells wide."""
    clock = f"{frame.elapsed_s:4.1f} of {frame.total_s:g} s"
    if not frame.admitting:
        clock = f"{frame.elapsed_s:4.1f} s, {'finishing' if frame.sessions_live else 'done'}"
    time = Table.grid(padding=(0, 2))
    time.add_row(
        ProgressBar(
            total=frame.total_s, completed=frame.elapsed_s, width=24, complete_style="cyan", finished_style="cyan"
        ),
        clock,
        _evenness(frame),
    )
    totals = Text(f"{_progress(frame)} | ")
    totals.append(_faults(frame), style="bold red" if frame.errors else "green")
    return Group(_engine_table(frame, min(width, MOST_CELLS)), "", time, totals)


def _engine_table(frame: Frame, width: int) -> Table:
    """Return one row per engine; the bar takes the cells that the numbers leave."""
    table = Table(box=box.SIMPLE_HEAD, width=width, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("engine", no_wrap=True)
    table.add_column("capacity", justify="right", no_wrap=True)
    table.add_column("load", ratio=1)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("sessions", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True, min_width=7)
    table.add_column("per capacity", justify="right", no_wrap=True, min_width=12)
    table.add_column("cache", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in frame.rows:
        table.add_row(
            row.engine,
            f"{row.capacity:g}",
            _load_bar(row),
            f"{row.outstanding}/{row.capacity:g}",
            str(row.sessions),
            f"{row.output_tokens:,}",
            _share(row, frame.mean_tokens_per_capacity),
            f"{row.cached_share:.0%}",
            Text(row.state, style=STATE_STYLES.get(row.state, "")),
        )
    return table


def _load_bar(row: EngineRow) -> ProgressBar:
    """Return the bar of open leases over capacity; yellow when some of them have to queue in the engine."""
    style = "yellow" if row.outstanding > row.capacity else "green"
    return ProgressBar(total=row.capacity, completed=row.outstanding, complete_style=style, finished_style=style)


def _share(row: EngineRow, mean: float) -> Text:
    """Return tokens per capacity, and how far that is from the fleet's mean."""
    deviation = row.tokens_per_capacity / mean - 1 if mean else 0.0
    return Text(f"{row.tokens_per_capacity:,.0f}").append(f" {deviation:+5.1%}", style="dim")


def _progress(frame: Frame) -> str:
    rate = f"{frame.requests:,} requests, {frame.requests_per_s:,.0f}/s"
    return f"{count(frame.sessions_live, 'session')} live, {frame.sessions_done:,} done | {rate}"


def _evenness(frame: Frame) -> str:
    return f"tokens per capacity vary by {frame.cv:.1%}"


def _faults(frame: Frame) -> str:
    return f"{count(frame.errors, 'error')}, {frame.moves} moved"
