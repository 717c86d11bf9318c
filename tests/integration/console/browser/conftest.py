"""Chromium, and a signed-in page of a console before a real API on a real database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page

from tests.browser.harness import browser, missing, page_of
from tests.integration.api.conftest import worker
from tests.integration.console.conftest import Console

__all__ = ["signed_in", "worker"]


@pytest.fixture
async def chromium() -> AsyncGenerator[Browser]:
    """A browser."""
    if (why := missing()) is not None:
        pytest.skip(why)
    async with browser() as chromium:
        yield chromium


@asynccontextmanager
async def signed_in(chromium: Browser, url: str, key: str) -> AsyncGenerator[Page]:
    """Give a page that is signed in, in which no script may fail and nothing may break the page's policy."""
    context = await chromium.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    async with page_of(context) as page:
        await page.goto("/login")
        await page.fill("#f-key", key)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/")
        yield page


@pytest.fixture
async def page(chromium: Browser, console: Console) -> AsyncGenerator[Page]:
    """A signed-in page of the console."""
    async with signed_in(chromium, console.url, console.api.tenant.key) as page:
        yield page
