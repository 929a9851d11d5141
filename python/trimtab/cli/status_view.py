"""The table of ``trimtab status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

_GOOD, _WAITING, _BAD = "green", "yellow", "red"
_STYLES = {
    "ready": _GOOD,
    "up": _GOOD,
    "starting": _WAITING,
    "unproven": _WAITING,
    "suspect": _WAITING,
    "half_open": _WAITING,
    "draining": _WAITING,
    "updating": _WAITING,
    "sleeping": _WAITING,
    "paused": _WAITING,
    "pending_version": _WAITING,
    "tainted": _BAD,
    "down": _BAD,
    "unavailable": _BAD,
    "failed": _BAD,
    "closed": _BAD,
}
_NUMBERS = ("outstanding", "capacity", "load", "sessions", "requests", "failed", "tokens")
_PIPE_WIDTH = 200


def print_status(url: str, document: Mapping[str, Any]) -> None:
    """Print a status document of the gateway at ``url`` as one table per pool."""
    console = Console(highlight=False)
    if not console.is_terminal:
        # A pipe has no width: cut names would be of no use to what reads them.
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(Group(*_parts(url, document)))


def _parts(url: str, document: Mapping[str, Any]) -> Iterator[RenderableType]:
    ready = "ready" if document["ready"] else "not ready"
    plane = document["data_plane"]
    others = max(plane.get("open_requests", 0) - 1, 0)  # the request that fetched the document is open, too
    yield Text.assemble(
        f"trimtab {document['version']} at {url}: ",
        (ready, "green" if document["ready"] else "red"),
        f", up {_duration(document['uptime_s'])}, requests: {others} open, "
        f"{sum(plane.get('requests_total', {}).values())} answered",
    )
    for role, served in document["roles"].items():
        for name, model in served["models"].items():
            yield Text()
            yield _pool_line(role, name, model)
            yield from _control_lines(model)
            yield from _missing_lines(model)
            yield _engines(model["engines"]) if model["engines"] else Text("no engines", style="dim")


def _pool_line(role: str, name: str, model: Mapping[str, Any]) -> Text:
    eligible = sum(engine["capacity"] for engine in model["engines"] if engine["eligible"])
    capacity = sum(engine["capacity"] for engine in model["engines"])
    return Text.assemble(
        (f"{role}/{name}", "bold"),
        "  ",
        (model["state"], _STYLES.get(model["state"], "")),
        f"  {model['outstanding']} outstanding, capacity {eligible:g} of {capacity:g} eligible, "
        f"{model['sessions']} sessions, {model['output_tokens']} output tokens",
    )


def _control_lines(model: Mapping[str, Any]) -> Iterator[Text]:
    """What a controller did to the pool; nothing for one that no controller ever touched."""
    if facts := list(_control_facts(model)):
        yield Text("  " + ", ".join(facts))
    if model["failure"] is not None:
        yield Text(f"  failed: {model['failure']}", style=_BAD)
    for owner in model["owners"]:
        if owner["fences"]:
            fences = ", ".join(owner["fences"])
            yield Text(f"  owner {owner['owner']} is fenced: {fences}; {owner['outstanding']} outstanding")
        elif owner["needs_acknowledgement"] and owner["acknowledged"] != model["weight_version"]:
            yield Text(f"  owner {owner['owner']} has not acknowledged version {model['weight_version']}")


def _missing_lines(model: Mapping[str, Any]) -> Iterator[Text]:
    """Engines that should be there and that the router does not have, each with the last that is known of it."""
    manager = model.get("manager")
    if manager is None:
        return
    present = {engine["engine_id"] for engine in model["engines"]}
    for engine in manager["engines"]:
        if engine["engine_id"] in present:
            continue
        reason = "" if engine["reason"] is None else f": {engine['reason'].strip().splitlines()[0]}"
        style = _STYLES.get(engine["state"], _BAD)
        yield Text(f"  {engine['engine_id']} (generation {engine['generation']}) is {engine['state']}{reason}", style)
    if manager["changing"] is not None:
        yield Text(f"  in progress: {manager['changing']}")


def _control_facts(model: Mapping[str, Any]) -> Iterator[str]:
    if model["pool_state"] != "serving":
        yield model["pool_state"]
    if model["weight_version"] is not None:
        yield f"weights version {model['weight_version']}"
    if (update := model["update"]) is not None:
        version = "" if update["to_version"] is None else f" to {update['to_version']}"
        yield f"update {update['update_id']}{version} is {update['phase']}"
    if model["server_paused"]:
        yield "engines paused"
    for count, what in ((model["waiters"], "waiting"), (len(model["senders"]), "senders")):
        if count:
            yield f"{count} {what}"


def _engines(engines: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("engine", overflow="fold")
    table.add_column("state")
    for header in _NUMBERS:
        table.add_column(header, justify="right")
    for engine in engines:
        state = "draining" if engine["state"] == "draining" else engine["health"]
        failed = engine["outcomes"].get("failed", 0) + engine["outcomes"].get("ambiguous", 0)
        table.add_row(
            Text(engine["engine_id"]),
            Text(state, style=_STYLES.get(state, "")),
            str(engine["outstanding"]),
            f"{engine['capacity']:g}",
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
