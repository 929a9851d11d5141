"""Recorded sessions instead of generated ones.

A trace is JSON, one turn a line: ``session`` (string), ``turn`` (from 0), ``arrival_s`` (offset at which the session's
first turn is due), ``prompt_tokens`` (the whole prompt), ``output_tokens``, ``tool_s`` (from the answer to the next
turn), and optionally ``task`` (string: sessions of one task are one group; default: each its own) and
``shared_tokens`` (prompt tokens that the sessions of the task share; default 0). Lines of different sessions may be
mixed.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benches.balance.workload import SessionPlan, Turn, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class TraceError(ValueError):
    """A line of a trace that breaks a rule: the message names file, line and rule."""


def load(path: Path) -> Workload:
    """The sessions of a trace, each submitted when it arrived.

    Raises:
        TraceError: A line is not what the format says, or a turn is missing or shorter than the one before.
    """
    sessions: dict[str, dict[int, dict[str, Any]]] = {}
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if text.strip():
            where = f"{path}:{number}"
            line = _checked(text, where)
            turns = sessions.setdefault(line["session"], {})
            if line["turn"] in turns:
                raise TraceError(f"{where}: turn {line['turn']} of session {line['session']!r} is there twice")
            turns[line["turn"]] = line
    if not sessions:
        raise TraceError(f"{path}: no turns")
    tasks: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
    for name, turns in sessions.items():
        ordered = _ordered(path, name, turns)
        tasks.setdefault(ordered[0].get("task", name), []).append((name, ordered))
    groups = tuple(
        tuple(_plan(number, sample, lines) for sample, (_, lines) in enumerate(members))
        for number, members in enumerate(tasks.values())
    )
    return Workload(groups, window=len(groups))


def dump(workload: Workload, path: Path) -> None:
    """Write a workload as a trace; everybody arrives when its environment would be up at the earliest."""
    lines = (line for plan in workload.sessions for line in _lines(plan))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _lines(plan: SessionPlan) -> Iterable[dict[str, Any]]:
    for number, turn in enumerate(plan.turns):
        yield {
            "session": plan.name,
            "turn": number,
            "arrival_s": round((plan.arrival_s or 0.0) + plan.start_s, 3),
            "prompt_tokens": turn.prompt_tokens,
            "output_tokens": turn.output_tokens,
            "tool_s": round(turn.tool_s, 3),
            "task": f"task-{plan.task}",
            "shared_tokens": plan.shared_tokens + plan.task_tokens,
        }


def _checked(text: str, where: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}: not JSON: {error}") from error
    if not isinstance(line, dict):
        raise TraceError(f"{where}: not an object")
    if not isinstance(line.get("session"), str) or not isinstance(line.get("task", ""), str):
        raise TraceError(f"{where}: session and task must be strings")
    for field, least in (("turn", 0), ("prompt_tokens", 1), ("output_tokens", 1), ("shared_tokens", 0)):
        value = line.get(field, 0 if field == "shared_tokens" else None)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TraceError(f"{where}: {field} must be a whole number of at least {least}, got {value!r}")
    for field in ("arrival_s", "tool_s"):
        value = line.get(field)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise TraceError(f"{where}: {field} must be a finite number, not negative, got {value!r}")
    return line


def _ordered(path: Path, name: str, turns: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    if missing := next((number for number in range(len(turns)) if number not in turns), None):
        raise TraceError(f"{path}: session {name!r} lacks turn {missing}")
    if 0 not in turns:
        raise TraceError(f"{path}: session {name!r} lacks turn 0")
    ordered = [turns[number] for number in range(len(turns))]
    for before, after in pairwise(ordered):
        if after["prompt_tokens"] < before["prompt_tokens"] + before["output_tokens"]:
            raise TraceError(
                f"{path}: turn {after['turn']} of session {name!r} does not contain the turn before: its prompt has "
                f"{after['prompt_tokens']} tokens, prompt and output before {before['prompt_tokens']} + "
                f"{before['output_tokens']}"
            )
    return ordered


def _plan(task: int, sample: int, lines: list[dict[str, Any]]) -> SessionPlan:
    turns = tuple(Turn(line["prompt_tokens"], line["output_tokens"], float(line["tool_s"])) for line in lines)
    shared = min(lines[0].get("shared_tokens", 0), lines[0]["prompt_tokens"])
    return SessionPlan(task, sample, 0.0, 0, shared, turns, float(lines[0]["arrival_s"]))
