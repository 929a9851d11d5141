"""A real browser: Chromium of the system, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str:
    """The system's Chromium; without one the test is skipped, or fails where it is required."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium on PATH (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """An empty page. What a script of it throws, or its security policy blocks, fails the test."""
    from playwright.async_api import async_playwright

    path = browser_path()
    wrong: list[str] = []
    async with async_playwright() as playwright:
        # The sandbox needs rights that a container does not have; the pages are our own.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = await browser.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
            yield page
        finally:
            await browser.close()
    assert wrong == []
