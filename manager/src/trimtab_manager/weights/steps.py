"""The steps of an update on its engines, each on all of them at once (see ``transaction`` for their order)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError
from trimtab_manager.engine.errors import ControlError, Refused
from trimtab_manager.weights.fan_out import fan_out, left_s, repeat
from trimtab_manager.weights.idle import confirm_idle
from trimtab_manager.weights.probe import StaleCache, ask, probe_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.engine.client import EngineClient
    from trimtab_manager.weights.deadlines import UpdateDeadlines
    from trimtab_manager.weights.rows import Row

BEST_EFFORT_S = 1.0
"""For engines that are lost anyway: longer, and the survivors would wait for them."""


class Steps:
    """The engines of one update.

    Args:
        update_id: Its id.
        version: What it brings.
        rows: The engines that take part.
        deadlines: Seconds per step.
    """

    def __init__(self, update_id: str, version: int, rows: Sequence[Row], deadlines: UpdateDeadlines) -> None:
        self._id = update_id
        self._label = str(version)
        self._rows = rows
        # Who sleeps has no KV cache, and a pause that is not ours to end.
        self._serving = [row for row in rows if row.member.serves]
        self._deadlines = deadlines
        self._prompt = probe_prompt(update_id)

    async def idle(self) -> None:
        """Every engine itself says that nothing runs."""
        await fan_out(
            "idle", self._serving, lambda row, at_s: confirm_idle(row.member.client, at_s), self._deadlines.idle_s
        )

    async def prime(self) -> None:
        """Have the old weights compute KV cache of a prompt that nobody else sends."""

        async def prime(row: Row, at_s: float) -> None:
            await ask(row.member.client, self._prompt, f"{self._id}-prime", timeout_s=left_s(at_s))

        await fan_out("prime", self._serving, prime, self._deadlines.verify_s)

    async def pause(self) -> None:
        """Close the engines' own gates: whoever calls one past the router waits there."""

        async def pause(row: Row, at_s: float) -> None:
            row.paused = True  # whatever the answer: a lost one may be of a pause that happened
            client = row.member.client
            await repeat(lambda limit_s: client.pause("abort", timeout_s=limit_s), at_s)

        await fan_out("pause", self._serving, pause, self._deadlines.pause_s)

    async def flush(self) -> None:
        """Empty the KV caches. Who refuses is asked again with growing gaps, and at last named with its queue."""

        async def flush(row: Row, at_s: float) -> None:
            client, tries = row.member.client, 0

            async def once(limit_s: float) -> None:
                nonlocal tries
                tries += 1
                await client.flush(timeout_s=limit_s)

            try:
                await repeat(once, at_s, refusals=True)
            except Refused as error:
                raise FlushRefused(row.id, await queue_of(client), tries, error) from error

        await fan_out("flush", self._serving, flush, self._deadlines.flush_s)

    async def read_back(self) -> None:
        """Every engine names the new version. ``/model_info`` is the one place that says what runs."""

        async def read(row: Row, at_s: float) -> None:
            client = row.member.client
            named = ""

            async def once(limit_s: float) -> None:
                nonlocal named
                named = (await client.model_info(timeout_s=limit_s)).weight_version

            await repeat(once, at_s)
            if named != self._label:
                doubt = f"; its answer to the transfer was lost: {row.doubt}" if row.doubt else ""
                raise WrongVersion(
                    row.id, "GET /model_info", f"names version {named!r} after the update to {self._label}{doubt}"
                )

        await fan_out("read_back", self._rows, read, self._deadlines.read_back_s)

    async def compare_checksums(self) -> None:
        """Replicas of one model hold the same numbers. Whoever differs from the majority, or all without one, fails."""
        found: dict[str, str] = {}

        async def read(row: Row, at_s: float) -> None:
            document = await row.member.client.checksums(timeout_s=left_s(at_s))
            found[row.id] = row.detail["checksum"] = str(document.get("per_engine_checksum"))

        await fan_out("checksums", self._rows, read, self._deadlines.read_back_s)
        counts = Counter(found.values()).most_common()
        has_majority = len(counts) == 1 or (len(counts) > 1 and counts[0][1] > counts[1][1])
        for row in self._rows:
            if row.well and not (has_majority and found[row.id] == counts[0][0]):
                spread = ", ".join(f"{count} x {checksum[:12]}" for checksum, count in counts)
                row.fail(
                    "checksums",
                    "error",
                    f"engine {row.id}: its weights have the checksum {found[row.id][:12]}, of all engines: {spread}",
                )

    async def resume(self, everyone: Sequence[Row]) -> None:
        """End every pause that is, or may be. Those that are lost are asked, too, but nobody waits for them long."""

        async def resume(row: Row, at_s: float) -> None:
            client = row.member.client
            await repeat(lambda limit_s: client.resume(timeout_s=limit_s), at_s)
            row.paused = False

        async def try_to(row: Row) -> None:
            try:
                await row.member.client.resume(timeout_s=BEST_EFFORT_S)
            except TrimtabError:
                return
            row.paused = False

        paused = [row for row in everyone if row.paused]
        lost = [try_to(row) for row in paused if not row.well]
        await asyncio.gather(fan_out("resume", paused, resume, self._deadlines.resume_s), *lost)

    async def verify(self) -> None:
        """Nothing of the primed prompt is cached any more, and what answers has the new version."""

        async def verify(row: Row, at_s: float) -> None:
            meta = await ask(row.member.client, self._prompt, f"{self._id}-verify", timeout_s=left_s(at_s))
            call = "POST /generate"
            if meta["cached_tokens"]:
                raise StaleCache(
                    row.id,
                    call,
                    f"found {meta['cached_tokens']} tokens of the probe prompt in the KV cache after the flush: they"
                    " were computed by the old weights",
                )
            if str(meta.get("weight_version")) != self._label:
                raise WrongVersion(
                    row.id, call, f"was answered by version {meta.get('weight_version')!r}, not {self._label}"
                )

        await fan_out("verify", self._serving, verify, self._deadlines.verify_s)


async def queue_of(client: EngineClient) -> str:
    """What runs and waits, in words, for a message."""
    try:
        loads = await client.loads(timeout_s=BEST_EFFORT_S)
    except TrimtabError as error:
        return f"its load is unknown: {error}"
    return f"{loads.running} requests run and {loads.waiting} wait"


class FlushRefused(ControlError):
    """An engine did not empty its KV cache within the deadline."""

    code = "flush_refused"

    def __init__(self, engine: str, queue: str, tries: int, last: Refused) -> None:
        what = f"refused to empty the KV cache, asked {tries} times: {queue}"
        super().__init__(engine, "/flush_cache", what, last.body.strip())


class WrongVersion(ControlError):
    """An engine does not run what it was given."""

    code = "wrong_version"
