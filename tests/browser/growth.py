"""``python -m tests.browser.growth [RUNS [THREADS]]``: what the console's pages cost on a fleet with much history.

Pages are fetched as a browser's first request of each is, without what it loads beside. Then 50 clients follow one
run's page, and last the console has nothing to do.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import asyncpg
import httpx2
import psutil

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from tests.browser.harness import Site
from tests.browser.pictures import seeded

_LOADS = 7
_WATCHERS = 50
_IDLE_S = 10.0

# Copies of the seeded rows, an hour apart at most, so that every column is as the fleet writes it.
_THREADS = """
INSERT INTO threads SELECT (jsonb_populate_record(t, jsonb_build_object(
    'id', 'thr_' || lpad(n::text, 26, '0'), 'title', 'Conversation ' || n, 'active_run_id', NULL))).*
  FROM (SELECT * FROM threads WHERE tenant_id = $1 AND head_turn_id IS NULL LIMIT 1) t, generate_series(1, $2::int) n
"""
_RUNS = """
INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object(
    'id', 'run_' || lpad(n::text, 26, '0'), 'thread_id', 'thr_' || lpad((1 + n % $3::int)::text, 26, '0'), 'seq', n,
    'turn_id', NULL, 'idempotency_key', NULL, 'created_at', r.created_at - n * interval '1 second',
    'started_at', r.created_at - n * interval '1 second',
    'finished_at', r.created_at - (n - 1) * interval '1 second'))).*
  FROM (SELECT * FROM runs WHERE tenant_id = $1 AND status = 'succeeded' LIMIT 1) r, generate_series(1, $2::int) n
"""


async def main(runs: int, threads: int) -> None:
    """Print the figures."""
    async with seeded() as nova:
        await _grow(nova, runs, threads)
        console = psutil.Process(nova.process.pid)
        async with httpx2.AsyncClient(base_url=nova.url, timeout=60, follow_redirects=True) as browser:
            await browser.get(nova.login())
            print(f"{runs:,} runs in {threads:,} conversations")
            for entry in (entry for module in PAGES for entry in module.nav):
                await _time(browser, entry.path)
            await _watch(nova, browser, console)
        before = console.cpu_times()
        await asyncio.sleep(_IDLE_S)
        after = console.cpu_times()
        spent_s = after.user + after.system - before.user - before.system
        print(f"  idle for {_IDLE_S:.0f} s: {spent_s * 1000:.0f} ms of CPU, {console.memory_info().rss / 1e6:.0f} MB")


async def _grow(nova: Site, runs: int, threads: int) -> None:
    database = await asyncpg.connect(nova.database_url)
    try:
        tenant = (await nova.fleet.whoami()).tenant_id
        await database.execute(_THREADS, tenant, threads)
        await database.execute(_RUNS, tenant, runs, threads)
        await database.execute("VACUUM ANALYZE")
    finally:
        await database.close()


async def _time(browser: httpx2.AsyncClient, path: str) -> None:
    times: list[float] = []
    answer = await browser.get(path)
    for _ in range(_LOADS):
        begun = time.perf_counter()
        answer = await browser.get(path)
        times.append((time.perf_counter() - begun) * 1000)
    size_kb = len(answer.content) / 1000
    print(
        f"  {path:<18} {answer.status_code}  median {statistics.median(times):6.0f} ms  slowest {max(times):6.0f} ms"
        f"  {size_kb:5.0f} kB"
    )


async def _watch(nova: Site, browser: httpx2.AsyncClient, console: psutil.Process) -> None:
    """Follow the page of a run by many clients; print what that costs, and when the last one had the end."""
    script = [
        {"say": "word " * 200, "token_delay_ms": 5},
        {"tool": {"name": "wait", "input": {}, "result": "ok", "sleep_s": 3}},
        {"say": "word " * 200, "token_delay_ms": 5},
    ]
    await nova.fleet.agents.create(
        AgentCreate(id="talker", name="Talker", engine="scripted", engine_config={"script": script})
    )
    run = await nova.fleet.runs.create(StatelessRunCreate(agent_id="talker", message="Talk"))
    memory, cpu = console.memory_info().rss, console.cpu_times()

    async def follow() -> float:
        async with browser.stream("GET", f"/runs/{run.id}/stream") as answer:
            async for _ in answer.aiter_bytes():
                pass
        return time.perf_counter()

    ended = await asyncio.gather(*(follow() for _ in range(_WATCHERS)))
    used = console.cpu_times()
    spent_s = used.user + used.system - cpu.user - cpu.system
    print(
        f"  {_WATCHERS} clients following one run: {spent_s * 1000:.0f} ms of CPU,"
        f" {(console.memory_info().rss - memory) / 1e6:.1f} MB more,"
        f" the last had its end {(max(ended) - min(ended)) * 1000:.0f} ms after the first"
    )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    asyncio.run(main(*(given + [100_000, 10_000][len(given) :])))
