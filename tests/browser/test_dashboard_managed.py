"""The dashboard at ``/ui`` over a gateway with a manager: what a user sees while engines come, go and are updated."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.managed import serving
from trimtab_manager.sim.faults import Fault

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = [pytest.mark.slow]
TRANSFER = "/update_weights_from_disk"


def row(page: Page, engine: str) -> Locator:
    """The row of one engine."""
    return page.locator("tr", has_text=engine)


def head(page: Page, state: str) -> Locator:
    """The state beside the model's name."""
    return page.locator(".head").get_by_text(state, exact=True)


async def nothing_is_said(page: Page) -> None:
    """Wait until no line of the card says anything of engines or updates."""
    from playwright.async_api import expect

    await expect(page.locator(".notice")).to_have_count(0)


async def test_engines_that_are_not_up_yet_are_named_with_what_they_do(page: Page) -> None:
    """First there is no engine in the table, but a line for each; then each has its row."""
    async with serving(2, start=False) as served:
        await page.goto(f"{served.url}/ui")
        await page.get_by_text("engine policy/0 (generation 0) is absent: not started").wait_for()
        await page.get_by_text("no engine yet").wait_for()
        served.launcher.gate.clear()
        starting = asyncio.ensure_future(served.manager.activate("rollout"))
        for engine in ("policy/0", "policy/1"):
            await page.get_by_text(f"engine {engine} (generation 1) is starting").wait_for()
        served.launcher.gate.set()
        await starting
        for engine in ("policy/0", "policy/1"):
            await row(page, engine).get_by_text("ready").wait_for()
        await nothing_is_said(page)


async def test_an_update_is_followed_until_its_version_is_published(page: Page) -> None:
    """Its phase while an engine takes its time, then the version of the model and of every engine."""
    async with serving(2) as served:
        await page.goto(f"{served.url}/ui")
        await head(page, "ready").wait_for()
        slow = served.launcher.handles["policy/1"].server.engine
        slow.arm(Fault(kind="hold", path=TRANSFER))
        updating = asyncio.ensure_future(served.manager.update_from_disk("rollout", path="sim://weights/7", version=7))
        await page.get_by_text(re.compile(r"^update to a new version \(update-7-.*\): drained, 0 running$")).wait_for()
        await head(page, "updating").wait_for()
        await page.get_by_text(re.compile("^in progress: update update-7-.* to 7$")).wait_for()
        slow.disarm()
        assert (await updating).ok
        await head(page, "ready").wait_for()
        await page.locator(".facts").get_by_text("weight version 7").wait_for()
        for engine in ("policy/0", "policy/1"):
            assert await row(page, engine).locator("td").last.inner_text() == "7"
        await nothing_is_said(page)


async def test_an_engine_that_an_update_failed_on_is_marked(page: Page) -> None:
    """It is tainted and keeps its old version; the other one serves the new one."""
    async with serving(2) as served:
        assert (await served.manager.update_from_disk("rollout", path="sim://weights/1", version=1)).ok
        served.launcher.handles["policy/1"].server.engine.arm(Fault(kind="status", status=500, path=TRANSFER))
        result = await served.manager.update_from_disk("rollout", path="sim://weights/2", version=2)
        assert not result.ok
        await page.goto(f"{served.url}/ui")
        await row(page, "policy/1").get_by_text("tainted").wait_for()
        assert await row(page, "policy/0").locator("td").last.inner_text() == "2"
        assert await page.locator(".facts").get_by_text("weight version 2").count() == 1


async def test_an_engine_that_is_lost_is_named_with_the_reason_until_it_is_replaced(page: Page) -> None:
    """Its row goes; a line says which incarnation died and which comes; then there is a row again."""
    async with serving(2) as served:
        await page.goto(f"{served.url}/ui")
        await row(page, "policy/0").get_by_text("ready").wait_for()
        served.launcher.gate.clear()
        served.launcher.handles["policy/0"].kill()
        notice = page.locator(".notice", has_text="engine policy/0 (generation 2) is starting: ")
        await notice.get_by_text("generation 1 died").wait_for()
        assert await row(page, "policy/0").count() == 0
        assert await row(page, "policy/1").get_by_text("ready").count() == 1
        served.launcher.gate.set()
        await row(page, "policy/0").get_by_text("ready").wait_for()
        await nothing_is_said(page)


@pytest.mark.parametrize(("hold", "end", "state"), [("sleep", "wake", "sleeping"), ("pause", "resume", "paused")])
async def test_a_model_that_is_held_says_so(page: Page, hold: str, end: str, state: str) -> None:
    """At the model and at every engine; when it was let go all are ready."""
    async with serving(2) as served:
        await page.goto(f"{served.url}/ui")
        await head(page, "ready").wait_for()
        assert (await getattr(served.manager, hold)("rollout")).ok
        await head(page, state).wait_for()
        assert await page.locator("tbody .state").all_inner_texts() == [state, state]
        assert (await getattr(served.manager, end)("rollout")).ok
        await head(page, "ready").wait_for()
        assert await page.locator("tbody .state").all_inner_texts() == ["ready", "ready"]
