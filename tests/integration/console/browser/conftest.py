"""One Chromium for all tests of this folder, and a signed-in page of a console before a real API on a real database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize

from tests.browser.harness import browser as running_browser
from tests.browser.harness import missing, new_context, page_of
from tests.integration.api.conftest import Api, working_for
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers
from tests.integration.console.conftest import Console

LOOP = "session"
"""The loop of the browser, and so of all tests and fixtures that wait for it."""
_VIEWPORT = ViewportSize(width=1280, height=900)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this folder on the browser's loop; skip them without a browser."""
    why = missing()
    for item in items:
        if item.nodeid.startswith("tests/integration/console/browser/"):
            item.add_marker(pytest.mark.asyncio(loop_scope=LOOP), append=False)
            if why is not None:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest_asyncio.fixture(scope="package", loop_scope=LOOP)
async def chromium() -> AsyncGenerator[Browser]:
    """A browser, which takes two seconds of CPU to start."""
    async with running_browser() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope=LOOP)
async def shared_api(shared: SharedServers, shared_api_url: str) -> AsyncGenerator[Api]:
    """The module's API, with a tenant of the test's own."""
    api = Api(shared_api_url, shared, shared.make_tenant())
    async with api.http:
        yield api


@pytest_asyncio.fixture(loop_scope=LOOP)
async def shared_worker(shared: SharedServers) -> AsyncGenerator[ManualWorker]:
    """A worker on the servers behind the applications that are shared."""
    async with working_for(shared.settings) as worker:
        yield worker


@pytest_asyncio.fixture(loop_scope=LOOP)
async def browser(console: Console) -> AsyncGenerator[httpx2.AsyncClient]:
    """A session of the tenant, without a page."""
    async with console.signed_in(console.api.tenant.key) as browser:
        yield browser


@asynccontextmanager
async def signed_in(chromium: Browser, url: str, key: str) -> AsyncGenerator[Page]:
    """Give a page that is signed in by the form, in which no script may fail and nothing break the page's policy."""
    context = await new_context(chromium, base_url=url, viewport=_VIEWPORT)
    async with page_of(context) as page:
        await page.goto("/login")
        await page.fill("#f-key", key)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/")
        yield page


@pytest_asyncio.fixture(loop_scope=LOOP)
async def page(chromium: Browser, console: Console, browser: httpx2.AsyncClient) -> AsyncGenerator[Page]:
    """An empty page with the session of `browser`: the console's pages of a sign-in take a second of CPU."""
    context = await new_context(chromium, base_url=console.url, viewport=_VIEWPORT)
    await context.add_cookies(
        [{"name": each.name, "value": each.value or "", "url": console.url} for each in browser.cookies.jar]
    )
    async with page_of(context) as page:
        yield page
