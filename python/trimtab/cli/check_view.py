"""The listing of ``trimtab check``: a TOML file in which every value is written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from trimtab.spec.error import toml_key
from trimtab.spec.write import toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trimtab.cli.resolved import Knob, Resolved

_MARK_COLUMN = 48
_DIM, _HEADER = "bright_black", "bold"


def print_resolved(file: Path, resolved: Resolved) -> None:
    """Print the listing; a pipe gets it as it is, a terminal with its defaults dimmed."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(file, resolved):
        console.print(line)


def _lines(file: Path, resolved: Resolved) -> Iterator[Text]:
    yield Text(f"# {file} is valid: {resolved.command} {file}", _DIM)
    for header, knobs in resolved.sections():
        yield Text()
        yield Text(header, _HEADER)
        yield from map(_line, knobs)


def _line(knob: Knob) -> Text:
    if knob.value is None:
        # TOML has no word for what is not set.
        text = f"# {toml_key(knob.key)} is not set"
        return Text(text if knob.origin == "default" else f"{text} here, but in the {knob.origin}", _DIM)
    text = f"{toml_key(knob.key)} = {toml_value((knob.key,), knob.value)}"
    return Text(f"{text:<{_MARK_COLUMN}}  # default", _DIM) if knob.origin == "default" else Text(text)
