"""The dashboard at ``/ui`` in a real browser, over real gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scripts import one
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.support.lab import Lab

pytestmark = [pytest.mark.slow]
NOBODY = "127.0.0.1:9"


def config(*engines: EngineConfig, **knobs: object) -> GatewayConfig:
    """One role, one model."""
    role = RoleConfig("rollout", (ModelConfig("policy", engines),))
    return GatewayConfig((role,), port=0, probe_interval_s=0.05, **knobs)  # type: ignore[arg-type]


async def test_it_shows_engines_with_state_load_and_versions(page: Page, lab: Lab) -> None:
    """A row per engine: a live one, and one that nobody has reached."""
    engine = await lab.engine(one())
    async with Gateway(config(EngineConfig(engine.authority, 2.0, "big"), EngineConfig(NOBODY, id="gone"))) as gateway:
        pool = gateway.pool("rollout", "policy")
        pool.publish("start", 7)
        pool.report_weights(pool.backends()[0], 7)
        await page.goto(f"{gateway.url}/ui")
        await page.locator("tr", has_text="big").get_by_text("ready").wait_for()
        await page.locator("tr", has_text="gone").get_by_text("starting").wait_for()
        assert "weight version 7" in await page.inner_text(".facts")
        with_lease = pool.acquire("a-session")
        await page.locator("tr", has_text="big").get_by_text("1 / 2").wait_for()
        assert await page.locator("tr", has_text="big").locator(".track > div").get_attribute("style") == "width: 100%;"
        with_lease.settle("completed", output_tokens=5)
        await page.locator("tr", has_text="big").get_by_text("0 / 2").wait_for()


async def test_it_follows_an_update_and_says_what_holds_the_model(page: Page, lab: Lab) -> None:
    """State, phase and fences change on the page without a reload."""
    engine = await lab.engine(one())
    async with Gateway(config(EngineConfig(engine.authority))) as gateway:
        pool = gateway.pool("rollout", "policy")
        await page.goto(f"{gateway.url}/ui")
        await page.locator(".head").get_by_text("ready").wait_for()
        pool.begin_update("u-1", to=3)
        await page.get_by_text("update to 3 (u-1): drained, 0 running").wait_for()
        await page.locator(".head").get_by_text("updating").wait_for()
        pool.cancel_update("u-1")
        pool.end_server_pause("u-1")
        pool.fence("default", "maintenance")
        await page.get_by_text("owner default is fenced: maintenance").wait_for()


async def test_it_asks_for_the_key_and_shows_nothing_without(page: Page) -> None:
    """The page itself is public; the facts are the client's. A wrong key is said to be wrong."""
    async with Gateway(config(EngineConfig(NOBODY, id="secret-engine"), client_key="right")) as gateway:
        await page.goto(f"{gateway.url}/ui")
        field = page.get_by_label("client key")
        await field.fill("wrong")
        await page.get_by_role("button").click()
        await page.get_by_text("this is not the key").wait_for()
        assert "secret-engine" not in await page.content()
        await field.fill("right")
        await page.get_by_role("button").click()
        await page.get_by_text("secret-engine").wait_for()
        assert await page.locator("#key-form").is_hidden()


async def test_names_are_text_whatever_they_hold(page: Page) -> None:
    """An engine's id that looks like markup is shown, not run."""
    name = "<img/src=x/onerror=alert(1)>"
    async with Gateway(config(EngineConfig(NOBODY, id=name))) as gateway:
        await page.goto(f"{gateway.url}/ui")
        await page.get_by_text(name).wait_for()
        assert await page.locator("td img").count() == 0


async def test_a_gateway_that_is_gone_is_said_so_and_found_again(page: Page) -> None:
    """The last look stays, marked as old."""
    served = config(EngineConfig(NOBODY, id="e0"))
    async with Gateway(served) as gateway:
        port = int(gateway.url.rsplit(":", 1)[1])
        await page.goto(f"{gateway.url}/ui")
        await page.get_by_text("e0").wait_for()
    await page.get_by_text("the gateway does not answer").wait_for()
    assert await page.locator("body.stale").count() == 1
    assert await page.get_by_text("e0").count() == 1
    role = RoleConfig("rollout", (ModelConfig("policy", (EngineConfig(NOBODY, id="e1"),)),))
    async with Gateway(GatewayConfig((role,), port=port)):
        await page.get_by_text("e1").wait_for()
        assert await page.locator("body.stale").count() == 0


async def test_it_fits_a_narrow_screen(page: Page) -> None:
    """The page itself never scrolls sideways; a wide table scrolls in its card."""
    await page.set_viewport_size({"width": 360, "height": 700})
    async with Gateway(config(EngineConfig(NOBODY, id="an-engine-with-a-long-name.example"))) as gateway:
        await page.goto(f"{gateway.url}/ui")
        await page.get_by_text("an-engine-with-a-long-name.example").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
