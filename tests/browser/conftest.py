"""One fleet, one console and one browser for all tests of this folder; a context of its own for each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.browser.harness import Site, browser, missing, new_context, page_of, site
from tests.browser.seeding import seed
from tests.support.servers.databases import own_valkey

_LOOP = "session"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this folder on the loop of the fixtures that they share; skip them without a browser."""
    why = missing()
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.asyncio(loop_scope=_LOOP), append=False)
            item.add_marker(pytest.mark.fleet)
            if why is not None:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="package")
def own_redis_url() -> Generator[str]:
    """A Valkey that no other test empties."""
    with own_valkey() as url:
        yield url


@pytest_asyncio.fixture(scope="package", loop_scope=_LOOP)
async def nova(
    postgres_url_admin: str, own_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Site]:
    """A fleet with a morning's work, and its console."""
    async with site(postgres_url_admin, own_redis_url, tmp_path_factory.mktemp("console")) as running:
        await seed(running.fleet)
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope=_LOOP)
async def chromium() -> AsyncGenerator[Browser]:
    """One browser."""
    async with browser() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope=_LOOP)
async def page(nova: Site, chromium: Browser) -> AsyncGenerator[Page]:
    """A signed-in page at 1280 by 800. A script error, or anything that the page's policy refused, fails the test."""
    context = await new_context(chromium, viewport={"width": 1280, "height": 800})
    async with page_of(context) as page:
        await page.goto(nova.login())
        yield page
