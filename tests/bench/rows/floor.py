"""What users run beside the floor, pattern by pattern, alternating in one run: ratios that travel between machines."""

import statistics
from collections.abc import Awaitable, Callable, Mapping

from tests.bench.figures import Figure, Result
from tests.bench.installed import Site, floor
from tests.bench.patterns import (
    Window,
    burst,
    closed_loop,
    first_event,
    new_conversation,
    one_by_one,
    post_then_wait,
    post_wait,
)
from tests.bench.stage import Bench

_WARM_UP = 60


async def measure_floor(bench: Bench) -> Result:
    """Measure throughput, latencies and a burst on both, in turns."""
    sizes = bench.sizes
    patterns: dict[str, Callable[[Site], Awaitable[Window]]] = {
        "wait": lambda site: closed_loop(site, post_wait, sizes.clients, sizes.turns_s / sizes.rounds),
        "then": lambda site: closed_loop(site, post_then_wait, sizes.clients, sizes.turns_s / sizes.rounds),
        "idle wait": lambda site: one_by_one(site, post_wait, sizes.waits // sizes.rounds),
        "idle then": lambda site: one_by_one(site, post_then_wait, sizes.waits // sizes.rounds),
        # Each turn beside the effects of those before it.
        "new conversation": lambda site: one_by_one(site, new_conversation, 4 * sizes.waits // sizes.rounds, gap_s=0),
        "first event": lambda site: one_by_one(site, first_event, sizes.streams // sizes.rounds),
        "burst": lambda site: burst(site, sizes.concurrent, sizes.turn_s),
    }
    cpu: dict[str, Mapping[str, float]] = {}
    async with floor(bench.servers, preloaded=bench.preloaded) as least, bench.site() as fleet:
        sites = {"floor": least, "fleet": fleet}
        windows: dict[tuple[str, str], list[Window]] = {}
        for site in sites.values():
            await closed_loop(site, post_wait, 4, 2.0, most=_WARM_UP)
        for number in range(sizes.rounds):
            for pattern, run in patterns.items():
                for name, site in sites.items():
                    # A server closes connections that were idle while the other one was measured.
                    site.client.close()
                    with site.meter() as meter:
                        window = await run(site)
                    windows.setdefault((pattern, name), []).append(window)
                    if pattern == "wait" and number == sizes.rounds // 2:
                        cpu[name] = meter.details(window.turns)["cpu_ms_per_run"]
    return _result(windows, cpu, sizes.clients, sizes.concurrent)


def _result(
    windows: Mapping[tuple[str, str], list[Window]], cpu: Mapping[str, Mapping[str, float]], clients: int, burst: int
) -> Result:
    def rate(pattern: str, name: str) -> float:
        return statistics.median(window.turns / window.wall_s for window in windows[pattern, name])

    def p50_ms(pattern: str, name: str) -> float:
        return statistics.median(took_s for window in windows[pattern, name] for took_s in window.took_s) * 1000

    def wall_s(name: str) -> float:
        return statistics.median(window.wall_s for window in windows["burst", name])

    rates = {pattern: (rate(pattern, "fleet"), rate(pattern, "floor")) for pattern in ("wait", "then")}
    idle = {
        pattern: (p50_ms(pattern, "fleet"), p50_ms(pattern, "floor"))
        for pattern in ("idle wait", "idle then", "new conversation", "first event")
    }
    walls = wall_s("fleet"), wall_s("floor")
    all_ms = {
        name: sum(ms for process, ms in used.items() if process != "load generator") for name, used in cpu.items()
    }
    ratio = "× floor"  # noqa: RUF001 - a ratio is written so
    return Result(
        "floor",
        f"`nova up` beside the least server of the same parts, {clients} clients",
        (
            Figure("POST+wait, turns a second", rates["wait"][0] / rates["wait"][1], ratio, bound=0.8, at_least=True),
            Figure("POST then GET wait, turns a second", rates["then"][0] / rates["then"][1], ratio),
            Figure("wait p50, idle", idle["idle wait"][0] / idle["idle wait"][1], ratio, bound=1.6),
            Figure("POST then GET wait p50, idle", idle["idle then"][0] / idle["idle then"][1], ratio),
            Figure(
                "new conversation p50, one after the other",
                idle["new conversation"][0] / idle["new conversation"][1],
                ratio,
                bound=1.5,
            ),
            Figure("first event p50, idle", idle["first event"][0] / idle["first event"][1], ratio, bound=1.6),
            Figure(f"{burst} turns of 2 s at once", walls[0] / walls[1], ratio),
            Figure("CPU a turn, all processes", all_ms["fleet"], "ms", bound=9.0),
        ),
        notes=(
            f"POST+wait {rates['wait'][0]:.0f} of {rates['wait'][1]:.0f} turns a second; POST then GET wait "
            f"{rates['then'][0]:.0f} of {rates['then'][1]:.0f}; "
            + "; ".join(f"{name} {ours:.1f} beside {least:.1f} ms" for name, (ours, least) in idle.items())
            + f"; burst {walls[0]:.2f} beside {walls[1]:.2f} s.",
            *(f"CPU a turn, {name}: {_list(used)} ms; {all_ms[name]:.2f} ms in all." for name, used in cpu.items()),
        ),
        details={"cpu_ms_per_run": cpu["fleet"], "floor_cpu_ms_per_run": cpu["floor"]},
    )


def _list(used: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ms:.2f}" for name, ms in used.items() if name != "load generator" and ms >= 0.005)
