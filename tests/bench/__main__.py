"""Measure every promise of the design on this machine, and print the table.

    python -m tests.bench [--quick] [--only ROW]… [--json FILE] [--markdown FILE]

Starts its own servers and fleets, on data that is deleted at the end. Exits with 1 if a bound is missed and 2 if a
measurement failed.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench.bare import measure_bare_celery
from tests.bench.figures import Result
from tests.bench.machine import Machine
from tests.bench.report import Report
from tests.bench.rows import ROWS
from tests.bench.servers import Servers, bench_servers
from tests.bench.sizes import Sizes
from tests.bench.stage import Bench


async def measure(
    servers: Servers, sizes: Sizes, rows: Sequence[str], console: Console, *, with_bare: bool = True
) -> list[Result]:
    """Measure rows, one after the other, and return the results of those that did not fail."""
    bench = Bench(servers, sizes)
    if with_bare:
        console.print("bare Celery …", style="dim")
        bench = replace(bench, bare=await measure_bare_celery(servers, sizes))
    results: list[Result] = []
    for row in rows:
        console.print(f"{row} …", style="dim")
        try:
            results.append(await ROWS[row](bench))
        except Exception:
            # A failed measurement does not lose the figures of the others.
            console.print_exception()
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    # Without the developer's own settings.
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]
    console = Console(stderr=True)
    machine, began_at, began_s = Machine.this(), datetime.now(UTC), time.perf_counter()
    sizes = Sizes.quick() if options.quick else Sizes()
    if options.messages is not None:
        sizes = replace(sizes, searched_messages=options.messages)
    rows = tuple(options.only or ROWS)
    with bench_servers(options.home) as servers:
        results = uvloop.run(measure(servers, sizes, rows, console, with_bare=not options.no_bare))
    name = "quick" if options.quick else "full"
    report = Report(machine, began_at, time.perf_counter() - began_s, name, results)
    report.print(Console())
    if options.json:
        options.json.write_bytes(report.to_json())
    if options.markdown:
        options.markdown.write_text(report.to_markdown(), encoding="utf-8")
    if len(results) < len(rows):
        return 2
    return 1 if report.missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", action="append", choices=tuple(ROWS), metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: two minutes, and rougher figures")
    parser.add_argument("--messages", type=int, metavar="COUNT", help="messages of the agent in the row search")
    parser.add_argument("--no-bare", action="store_true", help="leave out the comparison with bare Celery")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and details")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--home", type=Path, metavar="FOLDER", help="put the servers' data on this disk")
    return parser


if __name__ == "__main__":
    sys.exit(main())
