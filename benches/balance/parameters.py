"""The parameters of the model as a table: names, values and reasons, from where they are defined and explained."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields

from benches.balance.fleet import TP4, EngineModel
from benches.balance.workload import AREAL_SWE, DEEPSWE, NEMO_RL, TRACELAB, LogNormal, WorkloadModel

_SOURCES = {
    "AREAL_SWE": ("AReaL's SWE configuration", AREAL_SWE),
    "NEMO_RL": ("NeMo-RL #3663", NEMO_RL),
    "TRACELAB": ("TraceLab", TRACELAB),
    "DEEPSWE": ("DeepSWE", DEEPSWE),
}


def table() -> str:
    """Workload and engine of the reference shape."""
    lines = ["| parameter | value | source or reason |", "|---|---|---|"]
    for model in (WorkloadModel(), TP4):
        reasons = _reasons(type(model))
        for field in fields(model):
            value = _value(getattr(model, field.name))
            lines.append(f"| `{field.name}` | {value} | {reasons.get(field.name, 'an assumption')} |")
    return "\n".join(lines)


def _reasons(kind: type[WorkloadModel | EngineModel]) -> dict[str, str]:
    """The docstring below each field that has one."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = _prose(str(ast.literal_eval(below.value)))
    return found


def _prose(docstring: str) -> str:
    text = " ".join(docstring.split())
    for name, (title, source) in _SOURCES.items():
        text = text.replace(f"``{name}``", f"[{title}]({source.partition(' ')[0]})")
    return text.replace("``", "`")


def _value(value: LogNormal | float) -> str:
    if isinstance(value, LogNormal):
        return f"log-normal: median {value.median:,g}, sigma {value.sigma:g}, at most {value.most:,g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
