"""The line that moves while a fleet starts, and the log above it."""

from __future__ import annotations

import io
import logging

from rich.console import Console

from trimtab.cli.up_view import Above


def test_log_lines_stay_whole_above_the_line() -> None:
    """Neither wrapped at the terminal's width nor read as markup: they are copied into bug reports."""
    written = io.StringIO()
    handler = logging.StreamHandler(Above(Console(file=written, width=20, force_terminal=False)))
    line = "engine serves  engine=policy/0  url=http://127.0.0.1:20000  names=[bold]"
    handler.emit(logging.LogRecord("trimtab", logging.INFO, "", 0, line, None, None))
    handler.emit(logging.LogRecord("trimtab", logging.INFO, "", 0, "second", None, None))
    assert written.getvalue() == f"{line}\nsecond\n"
