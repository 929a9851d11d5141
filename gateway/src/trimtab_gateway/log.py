"""Structured logs: an event and its fields, through the standard library's logging.

The gateway is a library as well as a server, so its loggers hand every record to
``logging.getLogger("trimtab.<name>")`` and leave format and destination to the application. ``configure_logging`` is
what ``trimtab serve`` chooses: one line per record on a stream, for people or as JSON.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TextIO, cast

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose keyword arguments become fields of the record."""
    logger = structlog.wrap_logger(
        logging.getLogger(f"trimtab.{name}"),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def configure_logging(stream: TextIO, *, as_json: bool = False) -> None:
    """Send the records of trimtab (info and above) and the warnings of everything else to ``stream``."""
    enrich: list[Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder(), _timestamp]
    renderers: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer() if as_json else _plain_line,
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=renderers, foreign_pre_chain=enrich))
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("trimtab").setLevel(logging.INFO)


_timestamp = structlog.processors.TimeStamper(fmt="iso", utc=True)


def _plain_line(_logger: WrappedLogger, _method: str, record: EventDict) -> str:
    """``12:30:01.123456Z info    pool is ready  pool=rollout/tiny``."""
    time = str(record.pop("timestamp", "")).partition("T")[2]
    level, event, trace = record.pop("level", ""), record.pop("event", ""), record.pop("exception", None)
    fields = "".join(f"  {key}={_plain_value(value)}" for key, value in record.items())
    return f"{time} {level:<7} {event}{fields}" + (f"\n{trace}" if trace else "")


def _plain_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    text = str(value)
    return repr(text) if not text or any(character.isspace() for character in text) else text
