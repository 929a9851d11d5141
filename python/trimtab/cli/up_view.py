"""What a person sees while engines start: one line that moves, below the log."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType
    from typing_extensions import Self

    from trimtab_manager import InferenceManager
    from trimtab_manager.launch.types import Progress

logger = logging.getLogger("trimtab.up")


class Above(io.StringIO):
    """Writes whole lines above what moves on a console, as they are: neither wrapped nor coloured."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def flush(self) -> None:
        """Write what has come since the last time."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        if text:
            self._console.print(Text(text.removesuffix("\n")), soft_wrap=True)


class Bringup:
    """The line, as a context manager.

    Attributes:
        log: What is written here appears above the line; None: there is no line, and the log may go anywhere.

    Args:
        is_shown: Whether there is a terminal to show it on. Without one the log lines say it all.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._manager: InferenceManager | None = None
        self._live: Live | None = None
        self.log: TextIO | None = None
        if is_shown:
            console = Console(stderr=True, highlight=False)
            self.log = Above(console)
            self._live = Live(
                console=console,
                get_renderable=self._line,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def follow(self, manager: InferenceManager) -> None:
        """Show the engines of ``manager`` from now on."""
        self._manager = manager

    def tell(self, progress: Progress) -> None:
        """A launcher's word on one engine that takes long."""
        logger.info("%s", progress)

    def end(self) -> None:
        """Everything that is going to start has started."""
        if self._live is not None:
            self._live.stop()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _line(self) -> RenderableType:
        if self._manager is None:
            return ""
        engines = [engine for role in self._manager.view() for model in role.models for engine in model.engines]
        up = sum(engine.state == "ready" for engine in engines)
        waiting = [engine.id for engine in engines if engine.state != "ready"]
        few = ", ".join(waiting[:4]) + (f" and {len(waiting) - 4} more" if len(waiting) > 4 else "")  # noqa: PLR2004 -- a line's worth
        line = f"{up} of {len(engines)} engines are up" + (f"; starting: {few}" if waiting else "")
        return Spinner("dots", Text(line, no_wrap=True, overflow="ellipsis"))
