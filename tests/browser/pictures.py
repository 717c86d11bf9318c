"""``python -m tests.browser.pictures [WORD…]``: pictures of every page of the console, for the documents.

A fleet with a morning's work is started. Each page of the navigation, and the first thing that it lists, is taken at
three widths in both themes; then `nova chat` in a terminal. Words choose among them by their names.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from math import ceil
from pathlib import Path

from playwright.async_api import Page

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.wire import ThreadPatch
from nova_workers.devstack.commands import WORKER_APP
from tests.browser import terminal_picture
from tests.browser.harness import Site, browser, signed_in, site
from tests.browser.seeding import seed
from tests.support.servers.databases import own_postgres, own_valkey

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTHS = {"phone": (390, 844), "laptop": (1280, 800), "desktop": (1680, 1000)}
THEMES = ("light", "dark")
_QUALITY = 70
_STREAMED_MS = 600
_FIRST_ROW = "main [data-rows] tbody td.main a, main .rows li > a"


async def main(words: list[str]) -> None:
    """Take the pictures."""
    FOLDER.mkdir(exist_ok=True)
    async with seeded() as nova, browser() as chromium:
        page = await signed_in(await chromium.new_context(), nova)
        for name, path in await _pages(page, nova):
            if words and not any(word in name for word in words):
                continue
            for theme in THEMES:
                await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                for width, (across, down) in WIDTHS.items():
                    await page.set_viewport_size({"width": across, "height": down})
                    await page.goto(f"{nova.url}{path}")
                    # What is streamed shows its first lines by then.
                    await page.wait_for_timeout(_STREAMED_MS)
                    await _take(page, FOLDER / f"{name}-{width}-{theme}.webp")
            print(name, path)
        if not words or "terminal" in words:
            await _take_terminal(page, nova)
    print(f"{sum(one.stat().st_size for one in FOLDER.iterdir()) / 1e6:.1f} MB in {FOLDER}")


async def _take_terminal(page: Page, nova: Site) -> None:
    if why := terminal_picture.missing():
        print(f"The picture of the terminal stays as it is: {why}.")
        return
    await page.goto("about:blank")
    await page.set_content(await terminal_picture.terminal_page(nova))
    box = await page.locator("body").bounding_box()
    assert box is not None
    await page.set_viewport_size({"width": ceil(box["width"]), "height": ceil(box["height"])})
    await _take(page, FOLDER / "terminal.webp")
    print("terminal")


@asynccontextmanager
async def seeded(*, worker_app: str = WORKER_APP, preloaded: bool = True) -> AsyncGenerator[Site]:
    """A fleet with a morning's work, and its console, on servers of its own; see `site`."""
    with ExitStack() as servers:
        home = Path(servers.enter_context(tempfile.TemporaryDirectory(prefix="nova-pictures-")))
        postgres, valkey = await asyncio.to_thread(
            lambda: (servers.enter_context(own_postgres()), servers.enter_context(own_valkey()))
        )
        async with site(postgres, valkey, home, worker_app=worker_app, preloaded=preloaded) as nova:
            await seed(nova.fleet)
            await _archive_scripts(nova)
            yield nova


async def _archive_scripts(nova: Site) -> None:
    """Put conversations between agents out of the chat's list: their messages are scripts of the scripted engine."""
    for thread in (await nova.fleet.threads.list(origin="agent")).items:
        await nova.fleet.threads.patch(thread.id, ThreadPatch(archived=True))


async def _pages(page: Page, nova: Site) -> list[tuple[str, str]]:
    """Return names and addresses: each page of the navigation, and that of the first thing that it lists."""
    found: list[tuple[str, str]] = []
    for entry in (entry for module in PAGES for entry in module.nav):
        name = entry.title.lower().replace(" ", "-")
        found.append((name, entry.path))
        await page.goto(f"{nova.url}{entry.path}")
        first = page.locator(_FIRST_ROW).first
        if entry.path != "/" and await first.count():
            address = await first.get_attribute("href") or ""
            answer = await page.goto(f"{nova.url}{address}") if address.startswith(f"{entry.path}/") else None
            if answer is not None and answer.ok:
                found.append((f"{name}-one", address))
    return found


async def _take(page: Page, to: Path) -> None:
    # WebP is a quarter of the size of PNG; Playwright's own call does not offer it.
    session = await page.context.new_cdp_session(page)
    taken = await session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
    await session.detach()
    await asyncio.to_thread(to.write_bytes, base64.b64decode(taken["data"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
