"""Two versions of the fleet side by side: what a change did to CPU a turn, throughput and latency.

    python -m tests.bench.side_by_side ../other-checkout

Both run as users start them, `nova up` with the scripted engine, and are measured in turns: ratios hold at any load of
the machine, where milliseconds do not. The other checkout runs in this one's environment.
"""

import argparse
import asyncio
import statistics
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench.installed import Site, nova_up
from tests.bench.patterns import burst, closed_loop, first_event, one_by_one, post_wait

_HERE = Path(__file__).resolve().parents[3]
_WARM_UP_S = 4.0
_SETTLE_S = 1.0
"""After a window with many clients, before idle latencies are measured: effects are still due."""
_SLEEP_S = 2.0

_Figures = Mapping[str, float]


async def _measure(site: Site, options: argparse.Namespace) -> _Figures:
    # A server closes connections that were idle while the other one was measured.
    site.client.close()
    with site.meter() as meter:
        window = await closed_loop(site, post_wait, options.clients, options.seconds)
    cpu = {name: ms for name, ms in meter.details(window.turns)["cpu_ms_per_run"].items() if name != "load generator"}
    figures = {"turns a second": window.turns / window.wall_s, "CPU a turn, ms": sum(cpu.values())}
    figures |= {f"  {name}": ms for name, ms in cpu.items()}
    await asyncio.sleep(_SETTLE_S)
    for name, turn in {"wait p50, idle, ms": post_wait, "first event p50, idle, ms": first_event}.items():
        one = await one_by_one(site, turn, options.idle)
        figures[name] = statistics.median(one.took_s) * 1000
    if options.burst:
        figures[f"{options.burst} turns of {_SLEEP_S:g} s at once, s"] = (
            await burst(site, options.burst, _SLEEP_S)
        ).wall_s
    return figures


async def _compare(options: argparse.Namespace) -> None:
    trees = {"other": options.other.resolve(), "this": _HERE}
    rounds: dict[str, list[_Figures]] = {name: [] for name in trees}
    async with AsyncExitStack() as stack:
        sites = {name: await stack.enter_async_context(nova_up(tree=tree)) for name, tree in trees.items()}
        for site in sites.values():
            await closed_loop(site, post_wait, options.clients, _WARM_UP_S)
        for number in range(options.rounds):
            # The first of a round in turns, too.
            for name in sorted(sites, reverse=bool(number % 2)):
                rounds[name].append(await _measure(sites[name], options))
    table = Table("", *trees, "this over other", title=f"medians of {options.rounds} rounds")
    for figure in rounds["this"][0]:
        pairs = [(other[figure], this[figure]) for other, this in zip(rounds["other"], rounds["this"], strict=True)]
        before, after = (statistics.median(values) for values in zip(*pairs, strict=True))
        ratios = [this / other for other, this in pairs if other]
        ratio = f"{statistics.median(ratios):.3f}" if ratios else ""
        table.add_row(figure, f"{before:.2f}", f"{after:.2f}", ratio)
    Console().print(table)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.side_by_side", description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout of the project")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0, help="a window of the closed loop lasts")
    parser.add_argument("--idle", type=int, default=40, help="requests a window for idle latencies")
    parser.add_argument("--burst", type=int, default=0, help=f"turns of {_SLEEP_S:g} s that begin at once; 0 for none")
    uvloop.run(_compare(parser.parse_args()))


if __name__ == "__main__":
    main()
