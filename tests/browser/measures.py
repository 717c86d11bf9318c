"""``python -m tests.browser.measures [URL PID]``: what a web interface costs, for decision 0029.

Without arguments: the console before a seeded fleet. With arguments: another program's page, and its process.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from typing import Any

import psutil
from playwright.async_api import Browser, BrowserContext

from tests.browser.harness import browser, signed_in
from tests.browser.pictures import seeded

SESSIONS = 50
LOADS = 15
_SETTLED_MS = 1_500
"""After a load: time for sockets to open, and for what a page fetches late."""


async def main(arguments: list[str]) -> None:
    """Print the figures."""
    if arguments:
        async with browser() as chromium:
            await _measure(chromium, await chromium.new_context(), arguments[0], psutil.Process(int(arguments[1])))
        return
    async with seeded() as nova, browser() as chromium:
        context = await chromium.new_context()
        await (await signed_in(context, nova)).close()
        # The process is a launcher's that became the console.
        for path in ("/", "/runs"):
            await _measure(chromium, context, f"{nova.url}{path}", psutil.Process(nova.process.pid))


async def _measure(chromium: Browser, context: BrowserContext, url: str, process: psutil.Process) -> None:
    storage = await context.storage_state()
    first = await chromium.new_context(storage_state=storage)
    transferred, requests = await _first_load(first, url)
    times = [await _load_ms(context, url) for _ in range(LOADS)]
    before = process.memory_info().rss
    pages = [await context.new_page() for _ in range(SESSIONS)]
    for page in pages:
        await page.goto(url)
    await pages[-1].wait_for_timeout(_SETTLED_MS)
    open_mb = (process.memory_info().rss - before) / 1e6
    for page in pages:
        await page.close()
    print(url)
    print(f"  first load           {transferred / 1000:8.0f} kB in {requests} requests")
    print(f"  later load, median   {statistics.median(times):8.0f} ms to the load event")
    print(f"  process              {before / 1e6:8.0f} MB, and {open_mb:.1f} MB more with {SESSIONS} pages open")


async def _first_load(context: BrowserContext, url: str) -> tuple[int, int]:
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Network.enable")
    sizes: list[int] = []

    def note(event: dict[str, Any]) -> None:
        sizes.append(int(event["encodedDataLength"]))

    session.on("Network.loadingFinished", note)
    await page.goto(url)
    await page.wait_for_timeout(_SETTLED_MS)
    await context.close()
    return sum(sizes), len(sizes)


async def _load_ms(context: BrowserContext, url: str) -> float:
    page = await context.new_page()
    await page.goto(url)
    await page.goto(url)
    spent: float = await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    await page.close()
    return spent


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
