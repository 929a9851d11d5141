"""The table of ``trimtab status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

_STYLES = {"ready": "green", "starting": "yellow", "draining": "yellow", "down": "red", "unavailable": "red"}
_RIGHT_ALIGNED = ("capacity", "outstanding", "load", "sessions", "requests", "failed", "tokens")


def print_status(url: str, document: Mapping[str, Any]) -> None:
    """Print a status document of the gateway at ``url`` as one table per pool."""
    Console(highlight=False).print(Group(*_parts(url, document)))


def _parts(url: str, document: Mapping[str, Any]) -> Iterator[RenderableType]:
    ready = "ready" if document["ready"] else "not ready"
    plane = document["data_plane"]
    yield Text.assemble(
        f"trimtab {document['version']} at {url}: ",
        (ready, "green" if document["ready"] else "red"),
        f", up {_duration(document['uptime_s'])}, {plane.get('open_requests', 0)} open requests, "
        f"{sum(plane.get('requests_total', {}).values())} answered",
    )
    for role, served in document["roles"].items():
        for name, model in served["models"].items():
            yield Text()
            yield _pool_line(role, name, model)
            yield _engines(model["engines"]) if model["engines"] else Text("no engines", style="dim")


def _pool_line(role: str, name: str, model: Mapping[str, Any]) -> Text:
    capacity = sum(engine["capacity"] for engine in model["engines"])
    return Text.assemble(
        (f"{role}/{name}", "bold"),
        "  ",
        (model["state"], _STYLES.get(model["state"], "")),
        f"  {model['outstanding']} outstanding / capacity {capacity:g}, {model['sessions']} sessions, "
        f"{model['output_tokens']} output tokens",
    )


def _engines(engines: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("engine", "state", "health", *_RIGHT_ALIGNED):
        table.add_column(header, justify="right" if header in _RIGHT_ALIGNED else "left", no_wrap=True)
    for engine in engines:
        failed = sum(count for outcome, count in engine["outcomes"].items() if outcome in ("failed", "ambiguous"))
        table.add_row(
            Text(engine["engine_id"]),
            Text(engine["state"], style=_STYLES.get(engine["state"], "")),
            Text(engine["health"]),
            f"{engine['capacity']:g}",
            str(engine["outstanding"]),
            f"{engine['outstanding'] / engine['capacity']:.2f}",
            str(engine["sessions"]),
            str(engine["picks"]),
            str(failed),
            str(engine["output_tokens"]),
        )
    return table


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
