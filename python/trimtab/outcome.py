"""How a lease ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Outcome"]

Outcome: TypeAlias = Literal["completed", "aborted", "rejected", "failed", "not_sent", "cancelled", "ambiguous", "lost"]
"""Outcome of one execution, as the sender saw it.

``completed``: a complete answer. ``aborted``: complete, but the engine stopped it on request. ``rejected``: the engine
refused it (4xx). ``failed``: the engine answered 5xx. ``not_sent``: no request byte was written. ``cancelled``: the
caller went away. ``ambiguous``: the connection broke after a request byte was written; the execution may have happened.
``lost``: its end was unknown, and now it is known to be over without a result.
"""
