"""Errors of an update as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from trimtab.fleet import OperationResult


class UpdateFailed(TrimtabError):
    """No engine runs the new version, and it is not published. The pool is open for the next update.

    Attributes:
        result: What became of each engine.
    """

    code: ClassVar[str] = "update_failed"

    def __init__(self, message: str, result: OperationResult) -> None:
        self.result = result
        rows: list[dict[str, Any]] = [
            {"engine": row.engine, "status": row.status, "error": row.error, "state": row.state}
            for row in result.engines
        ]
        self.detail = {"engines": rows, "weight_version": result.weight_version}
        super().__init__(message)


class UpdateCancelled(UpdateFailed):
    """The same, since somebody cancelled it."""

    code: ClassVar[str] = "update_cancelled"
