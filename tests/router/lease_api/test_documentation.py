"""The lease API's page is executed: what it tells people to type works, in the order in which it tells them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from trimtab._core import DataPlane, Pool, Role

PAGE = Path(__file__).parents[3] / "docs" / "lease-api.md"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the page's examples use curl")


def examples() -> str:
    """Every shell example of the page, as one script."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    return "\n".join(blocks)


async def run(script: str) -> list[dict[str, Any]]:
    """Runs `script` and reads its output, one JSON object per line."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-euc", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.decode().splitlines() if line]


async def test_the_examples_work() -> None:
    """Every call of the page succeeds, and the answers are those that the text announces."""
    pool = Pool("rollout/default")
    # Nobody listens at the page's addresses: probes would bring them down in the middle of it.
    plane = DataPlane.start(roles=[Role("rollout", {"default": pool})], probe_interval_s=3600.0)
    try:
        script = examples().replace("http://127.0.0.1:8000", f"http://127.0.0.1:{plane.port}")
        answers = await run(script)
    finally:
        await asyncio.to_thread(plane.shutdown)
    assert [answer for answer in answers if "error" in answer] == []
    assert all(answer["incarnation"] == answers[0]["incarnation"] for answer in answers)

    def seen(member: str) -> list[Any]:
        return [answer[member] for answer in answers if member in answer]

    assert not any(seen("replayed")), "an example was the same call as an earlier one"
    assert seen("weight_version") == [41]
    assert seen("version_mismatch") == [False]
    assert seen("phase") == ["published", "drained", "updating", "updating", "published"]
    (view,) = (answer for answer in answers if "counts" in answer)
    assert view["counts"]["picks"]["new"] == 1, "a repeated acquire was granted another lease"
    (batch,) = seen("results")
    assert [(result["status"], result["body"]["weight_version"]) for result in batch] == [(200, 42), (200, 42)]
    assert answers[-1]["state"] == "closed"


async def test_every_error_code_is_on_the_page() -> None:
    """The table of errors names every code of the served OpenAPI document under its status, and no other."""
    plane = DataPlane.start(roles=[Role("rollout", {"default": Pool("rollout/default")})])
    try:
        (document,) = await run(
            f"curl -sS http://127.0.0.1:{plane.port}/v1/router/openapi.json"
            " | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)))'"
        )
    finally:
        await asyncio.to_thread(plane.shutdown)
    codes = document["x-error-codes"]
    served = {code for group in codes.values() for code in group}
    table = PAGE.read_text(encoding="utf-8").split("## Errors")[1]
    rows = re.findall(r"^\| ([0-9, ]+) \| (.*?) \|", table, flags=re.MULTILINE)
    named = {code for _, cell in rows for code in re.findall(r"`(\w+)`", cell)}
    assert named == served
    assert {status.strip() for statuses, _ in rows for status in statuses.split(",")} == set(codes)
