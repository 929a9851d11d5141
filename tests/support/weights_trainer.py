"""A trainer with torch: sends the weights of a checkpoint to engines, and prints what became of it as JSON.

Run with the interpreter of the SGLang environment, which has torch; ``tests/e2e/test_sglang_weights.py`` does. Its
argument is a JSON object with ``kind`` (``tensor`` or ``distributed``), ``urls``, ``checkpoint``, ``version``,
``bucket_bytes``, and optionally ``only`` (names of tensors), ``reshape`` (whether the first one is sent in another
shape) and ``transfer_s``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.update_scope import small_scope
from trimtab import TrimtabError
from trimtab_manager.weights import Distributed, Tensors, UpdateDeadlines, UpdateFailed, WeightUpdates


def load(order: dict[str, Any]) -> list[tuple[str, Any]]:
    """The tensors to send."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    for file in sorted(Path(order["checkpoint"]).glob("*.safetensors")):
        tensors.update(load_file(file))
    wanted = [(name, tensor) for name, tensor in tensors.items() if name in order.get("only", tensors)]
    if order.get("reshape"):
        name, tensor = wanted[0]
        wanted[0] = (name, tensor.reshape(-1))
    return wanted


async def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """One update of engines that are on version 1."""
    tensors = load(order)
    partial = "only" in order
    source: Tensors | Distributed
    if order["kind"] == "tensor":
        source = Tensors(tensors, bucket_bytes=order["bucket_bytes"], partial=partial)
    else:
        source = Distributed(
            tensors,
            master_address="127.0.0.1",
            backend="gloo",
            bucket_bytes=order["bucket_bytes"],
            partial=partial,
        )
    deadlines = UpdateDeadlines(transfer_s=order.get("transfer_s", 60))
    async with small_scope(order["urls"]) as scope:
        updates = WeightUpdates(scope, deadlines)
        began = time.perf_counter()
        answer: dict[str, Any] = {"error": None}
        result = None
        try:
            result = await updates.update(source, order["version"], checksums=True)
        except UpdateFailed as failure:
            answer["error"], result = str(failure), failure.result
        except TrimtabError as error:
            answer["error"] = str(error)
        answer["rows"] = [asdict(row) for row in result.engines] if result is not None else []
        answer["steps_s"] = dict(result.detail.get("steps_s", {})) if result is not None else {}
        return {
            **answer,
            "seconds": time.perf_counter() - began,
            "states": scope.states(),
            "version": scope.pool.weight_version,
            "condemned": scope.condemned,
            "tasks": len(asyncio.all_tasks()),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(carry_out(json.loads(sys.argv[1])))) + "\n")
