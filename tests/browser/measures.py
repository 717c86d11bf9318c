"""``python -m tests.browser.measures [RUNS]``: what the console costs, and how fast it is.

What a page loads, and what open pages cost; from a token of the engine to a frame of the browser that shows it; what 50
followed conversations cost; every page's time on a fleet with a history of RUNS (100,000); and what the console costs
while nothing happens.

``python -m tests.browser.measures URL PID`` loads another program's page, for decision 0029.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import httpx2
import psutil
from playwright.async_api import Browser, BrowserContext

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.bench.figures import percentile
from tests.bench.stage import scripted
from tests.bench.stamped_worker_names import STAMP, STAMPED_WORKER_APP
from tests.browser.harness import Site, browser, signed_in
from tests.browser.history import RUNS_A_THREAD, fill_history
from tests.browser.pictures import seeded
from tests.support.waiting import until

_T = TypeVar("_T")

_SESSIONS = 50
_PAGES_OF_ONE = 5
_LOADS = 15
_SETTLED_MS = 1_500
"""After a load: time for sockets to open, and for what a page fetches late."""
_TOKENS_PER_S = 25.0
_TOKENS = 250
_IDLE_S = 20.0
_RUNS = 100_000
_SORTED_AND_SOUGHT = ("/runs?sort=cost", "/runs?sort=duration", "/runs?sort=queue_time", "/runs?text=in+no+run")

# Notes each stamp at the end of the first frame that contains it. A message is handled after the frame was painted.
_WATCH_FRAMES = """
() => {
  window.seen = new Map();
  const note = () => requestAnimationFrame(() => {
    const painted = new MessageChannel();
    painted.port1.onmessage = () => {
      const now = performance.timeOrigin + performance.now();
      for (const [stamp] of document.querySelector('#turns').textContent.matchAll(/\\b\\d{10,}\\b/g))
        if (!window.seen.has(stamp)) window.seen.set(stamp, now);
    };
    painted.port2.postMessage(0);
  });
  const all = {childList: true, subtree: true, characterData: true};
  new MutationObserver(note).observe(document.querySelector('#turns'), all);
}
"""


async def main(arguments: list[str]) -> None:
    """Print the figures."""
    if len(arguments) == 2:
        async with browser() as chromium:
            await _load(chromium, await chromium.new_context(), arguments[0], psutil.Process(int(arguments[1])))
        return
    async with seeded(worker_app=STAMPED_WORKER_APP, preloaded=False) as nova, browser() as chromium:
        # The process is a launcher's that became the console.
        console = psutil.Process(nova.process.pid)
        context = await chromium.new_context()
        await (await signed_in(context, nova)).close()
        for path in ("/", "/runs"):
            await _load(chromium, context, f"{nova.url}{path}", console)
        await _follow_tokens(context, nova)
        await context.close()
        async with httpx2.AsyncClient(base_url=nova.url, timeout=60, follow_redirects=True) as session:
            await session.get(nova.login())
            await _watch(nova, session, console)
            await _grow(nova, session, int(arguments[0]) if arguments else _RUNS)
        spent_s, _ = await _spent(console, asyncio.sleep(_IDLE_S))
        print(f"nothing happens for {_IDLE_S:.0f} s")
        print(f"  process              {spent_s / _IDLE_S:8.2%} of a core, {_mb(console):.0f} MB")


async def _load(chromium: Browser, context: BrowserContext, url: str, process: psutil.Process) -> None:
    first = await chromium.new_context(storage_state=await context.storage_state())
    transferred, requests = await _first_load(first, url)
    times = [await _load_ms(context, url) for _ in range(_LOADS)]
    before = _mb(process)
    signed_in_as = await context.storage_state()
    # A browser has six connections to a host, and each visible page follows a stream.
    people = [await chromium.new_context(storage_state=signed_in_as) for _ in range(_SESSIONS // _PAGES_OF_ONE)]
    for person in people:
        for _ in range(_PAGES_OF_ONE):
            page = await person.new_page()
            await page.goto(url)
    await asyncio.sleep(_SETTLED_MS / 1000)
    open_mb = _mb(process) - before
    for person in people:
        await person.close()
    print(url)
    print(f"  first load           {transferred / 1000:8.0f} kB in {requests} requests")
    print(f"  later load, median   {statistics.median(times):8.0f} ms to the load event")
    print(f"  process              {before:8.0f} MB, and {open_mb:.1f} MB more with {_SESSIONS} pages open")


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


async def _follow_tokens(context: BrowserContext, nova: Site) -> None:
    """Print the time from the engine's token to the frame that shows it."""
    run = await nova.fleet.runs.create(StatelessRunCreate(agent_id="nova", message="Hello"))
    await nova.fleet.runs.result(run.id)
    page = await context.new_page()
    await page.goto(f"{nova.url}/chat/{run.thread_id}")
    await page.evaluate(_WATCH_FRAMES)
    message = scripted({"say": f"{STAMP} " * _TOKENS, "tokens_per_s": _TOKENS_PER_S})
    await page.get_by_role("textbox", name="Message").fill(message)
    await page.keyboard.press("Enter")

    async def shows_all() -> bool:
        shown: int = await page.evaluate("window.seen.size")
        return shown == _TOKENS

    await until(shows_all, "every token to be shown", timeout_s=60)
    seen: dict[str, float] = await page.evaluate("Object.fromEntries(window.seen)")
    since_epoch_ms = (time.time_ns() - time.monotonic_ns()) / 1e6
    took_ms = [painted_ms - since_epoch_ms - int(stamp) / 1e6 for stamp, painted_ms in seen.items()]
    await page.close()
    print(f"an answer of {len(took_ms)} tokens at {_TOKENS_PER_S:g} a second, in the browser")
    print(
        f"  token to pixel       {percentile(took_ms, 0.5):8.0f} ms at p50, {percentile(took_ms, 0.95):.0f} at p95,"
        f" {percentile(took_ms, 0.99):.0f} at p99"
    )


async def _watch(nova: Site, session: httpx2.AsyncClient, console: psutil.Process) -> None:
    """Print what the console spends while as many conversations are written and followed at once."""
    message = scripted({"say": "word " * _TOKENS, "tokens_per_s": _TOKENS_PER_S})
    before = _mb(console)
    runs = [
        await nova.fleet.runs.create(StatelessRunCreate(agent_id="nova", message=message)) for _ in range(_SESSIONS)
    ]

    async def follow(thread_id: str, run_id: str) -> int:
        received = 0
        ended = asyncio.create_task(nova.fleet.runs.result(run_id))
        async with session.stream("GET", f"/chat/{thread_id}/events") as answer:
            async for piece in answer.aiter_bytes():
                received += len(piece)
                if ended.done():
                    break
        return received

    begun = time.monotonic()
    spent_s, received = await _spent(console, asyncio.gather(*(follow(run.thread_id, run.id) for run in runs)))
    took_s = time.monotonic() - begun
    print(f"{_SESSIONS} answers written at once, each followed by a page")
    print(f"  process              {spent_s / took_s:8.0%} of a core, and {_mb(console) - before:.1f} MB more")
    print(f"  a page gets          {statistics.median(received) / 1000:8.0f} kB")


async def _grow(nova: Site, session: httpx2.AsyncClient, runs: int) -> None:
    """Print the time of every page with a long history: the first request of each, without what it loads beside."""
    await fill_history(nova.database_url, (await nova.fleet.whoami()).tenant_id, runs)
    run = (await nova.fleet.runs.list(limit=1)).items[0]
    print(f"{runs:,} runs in {runs // RUNS_A_THREAD:,} conversations")
    paths = [entry.path for module in PAGES for entry in module.nav]
    for path in (*paths, f"/runs/{run.id}", f"/chat/{run.thread_id}", "/search?q=long", *_SORTED_AND_SOUGHT):
        cold_ms, *times_ms = [await _fetch_ms(session, path) for _ in range(_LOADS)]
        late_ms = percentile(times_ms, 0.95)
        print(f"  {path[:20]:<20} {statistics.median(times_ms):8.0f} ms, p95 {late_ms:.0f}, first {cold_ms:.0f}")


async def _fetch_ms(session: httpx2.AsyncClient, path: str) -> float:
    begun = time.perf_counter()
    answer = await session.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return (time.perf_counter() - begun) * 1000


async def _spent(process: psutil.Process, work: Awaitable[_T]) -> tuple[float, _T]:
    """Return the process's CPU seconds during some work, and the work's result."""
    before = process.cpu_times()
    result = await work
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system, result


def _mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
