"""Run `nova up` at half of what it takes, and judge whether what it uses stays flat.

    python -m tests.soak [--minutes 30] [--rate TURNS] [--tolerance 0.05] [--json FILE] [--markdown FILE]

Figures go to .cache/soak.json and .cache/soak.md.

Exits with 1 if something grows, a turn fails, or the fleet does not keep up. For a machine on which nothing else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import uvloop
from rich.console import Console

from nova_workers.devstack.first_start import KEY_FILE
from tests.bench.http import LoadClient
from tests.bench.installed import running_up
from tests.bench.machine import Machine
from tests.soak.load import Load, capacity
from tests.soak.report import Judged, Report
from tests.soak.samples import Sampler

_SAMPLES = 180
"""In the whole time: the slope compares all pairs."""
_LEAST_EVERY_S = 1.0
_WARM_UP_SHARE = 0.3
"""Pools fill, Python's heap and the statistics of tables settle, the first vacuum runs."""
_CALIBRATE_S = 20.0
_DRAIN_S = 180.0
_FOLDER = Path(".cache")
_WIDTH = 130
"""Of the table in a file or a pipe."""

_BUSY = "SELECT EXISTS (SELECT FROM effects WHERE status IN ('pending', 'running'))"
_RUNS = "SELECT count(*), count(*) FILTER (WHERE status IN ('queued', 'running', 'waiting')) FROM runs"


async def soak(*, minutes: float, rate: float | None, tolerance: float, home: Path, console: Console) -> Report:
    """Run a fleet under load, and return what was found."""
    machine, began_at = Machine.this(), datetime.now(UTC)
    seconds = minutes * 60
    async with running_up(home, {"NOVA_DEFAULT_ENGINE": "scripted"}) as (state, pid):
        client = LoadClient(state.api_url, (home / KEY_FILE).read_text(encoding="ascii").strip())
        sampler = Sampler(pid, state.database_url, state.redis_url)
        try:
            console.print("measuring what the fleet takes …", style="dim")
            calibrate_s, began_s = min(_CALIBRATE_S, seconds / 3), time.monotonic()
            turns = await capacity(client, seconds=calibrate_s) * calibrate_s
            # With what follows a turn: a fleet that answers faster than it embeds would fall behind all the time.
            await _settled(state.database_url)
            most = turns / (time.monotonic() - began_s)
            load = Load(client, rate or most / 2)
            console.print(f"{most:.1f} turns a second; now {load.rate:.1f} for {minutes:g} minutes …", style="dim")
            await _under_load(sampler, load, seconds, console)
            accepted, open_runs = await _ended(state.database_url)
        finally:
            client.close()
            await sampler.close()
    warm_up_s = seconds * _WARM_UP_SHARE
    judged = [Judged(each, each.verdict(tolerance=tolerance, after_s=warm_up_s)) for each in sampler.series.values()]
    judged.sort(key=lambda each: (each.ok, not each.series.judged, each.series.name))
    return Report(
        machine=machine,
        began_at=began_at,
        seconds=seconds,
        capacity=most,
        rate=load.rate,
        warm_up_s=warm_up_s,
        tolerance=tolerance,
        sent=load.sent,
        left_out=load.left_out,
        failed=dict(load.failed),
        accepted=accepted,
        open_runs=open_runs,
        judged=judged,
    )


async def _under_load(sampler: Sampler, load: Load, seconds: float, console: Console) -> None:
    until_s = time.monotonic() + seconds
    every_s = max(_LEAST_EVERY_S, seconds / _SAMPLES)
    sending = asyncio.create_task(load.run(until_s=until_s))
    told_s = time.monotonic()
    while not sending.done() and time.monotonic() < until_s:
        await asyncio.wait({sending}, timeout=every_s)
        await sampler.sample()
        if latencies := load.take():
            at_s = sampler.elapsed_s
            sampler.add(at_s, "time to the answer, p50", statistics.median(latencies) * 1e3, unit="ms", floor=10.0)
            slow = sorted(latencies)[int(len(latencies) * 0.95)]
            sampler.add(at_s, "time to the answer, p95", slow * 1e3, unit="ms", floor=50.0)
        if time.monotonic() - told_s > 60:
            told_s = time.monotonic()
            minutes, failed = sampler.elapsed_s / 60, load.failed.total()
            console.print(f"  {minutes:.0f} min, {load.sent:,} turns, {failed} failed", style="dim")
    await sending


async def _settled(database_url: str) -> None:
    """Wait until the work that the measurement left has ended, or for as long as that may take."""
    connection = await asyncpg.connect(database_url)
    try:
        deadline_s = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline_s and await connection.fetchval(_BUSY):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def _ended(database_url: str) -> tuple[int, int]:
    """Return how many runs there are, and how many of them stay open."""
    connection = await asyncpg.connect(database_url)
    try:
        deadline_s = time.monotonic() + _DRAIN_S
        while True:
            row = await connection.fetchrow(_RUNS)
            assert row is not None
            if row[1] == 0 or time.monotonic() > deadline_s:
                return int(row[0]), int(row[1])
            await asyncio.sleep(0.2)
    finally:
        await connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    # Without the developer's own settings.
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="nova-soak-", dir=options.home) as folder:
        report = uvloop.run(
            soak(
                minutes=options.minutes,
                rate=options.rate,
                tolerance=options.tolerance,
                home=Path(folder),
                console=console,
            )
        )
    report.print(Console(width=None if sys.stdout.isatty() else _WIDTH))
    for path, content in ((options.json, report.to_json()), (options.markdown, report.to_markdown().encode())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        console.print(f"written: {path}", style="dim")
    return 1 if report.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the load lasts; default 30")
    parser.add_argument("--rate", type=float, metavar="TURNS", help="turns a second; default half of what is measured")
    parser.add_argument("--tolerance", type=float, default=0.05, help="growth that is flat, as a share; default 0.05")
    parser.add_argument("--json", type=Path, metavar="FILE", default=_FOLDER / "soak.json", help="all samples")
    parser.add_argument("--markdown", type=Path, metavar="FILE", default=_FOLDER / "soak.md", help="the table")
    parser.add_argument("--home", type=Path, metavar="FOLDER", help="put the fleet's data on this disk")
    return parser


if __name__ == "__main__":
    sys.exit(main())
