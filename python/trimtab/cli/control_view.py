"""What a person sees of an operation: a line that moves while it runs, then a row per engine."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from trimtab.cli.fetch import fetch_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_LOOK_S = 0.25
_STEPS = ("quiescing", "drained", "updating", "published")
_COLOURS = {"ok": "green", "skipped": "yellow"}


@contextmanager
def watching(url: str, role: str, model: str | None, *, key: str | None, is_shown: bool) -> Iterator[None]:
    """Show how far an update or another change of a model's engines is while the block runs, as far as it can be seen.

    Args:
        url: Base URL of the gateway.
        role: The role.
        model: The model; None: the role's default one.
        key: Shown as a bearer token.
        is_shown: Whether there is something to see.
    """
    console = Console(stderr=True)
    if not is_shown or not console.is_terminal:
        yield
        return
    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[running]}"), TimeElapsedColumn())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("asking", total=len(_STEPS), running="")

        def look() -> None:
            while not over.wait(_LOOK_S):
                seen = _seen(url, role, model, key)
                if seen is not None:
                    progress.update(bar, **seen)

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            yield
        finally:
            over.set()
            looker.join()


def print_result(result: dict[str, Any]) -> None:
    """A row per engine, and one line about the whole."""
    console = Console(highlight=False)
    table = Table("engine", "result", "seconds", "state", "", box=None, pad_edge=False, header_style="bold")
    for row in result["engines"]:
        colour = _COLOURS.get(row["status"], "red")
        shown = (row["engine"], f"[{colour}]{row['status']}[/]", f"{row['seconds']:.2f}", row["state"] or "")
        table.add_row(*shown, row["error"] or "")
    console.print(table)
    version = "" if result["weight_version"] is None else f", published version {result['weight_version']}"
    word = "done" if result["ok"] else "not done on every engine"
    console.print(
        f"{result['operation']} of {result['role']}/{result['model']}: {word} in {result['seconds']:.2f} s{version}"
    )


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal leaves through the progress bar, which hid the cursor and shows it again."""
    del frame
    raise SystemExit(128 + number)


def _seen(url: str, role: str, model: str | None, key: str | None) -> dict[str, Any] | None:
    """How far the model's update is, or which other change of its engines runs; None: neither."""
    try:
        served = fetch_json(url, "/status", key=key)["roles"][role]
    except (click.ClickException, KeyError):
        return None
    found = served["models"].get(model or served["default_model"])
    if found is None:
        return None
    if (update := found["update"]) is not None:
        phase = update["phase"]
        done = _STEPS.index(phase) if phase in _STEPS else None
        return {"description": phase, "completed": done, "running": f"{found['outstanding']} running"}
    changing = (found["manager"] or {}).get("changing")
    return None if changing is None else {"description": changing}
