"""What users run beside the floor, pattern by pattern, alternating in one run: ratios that travel between machines."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.bench.figures import Figure, Result
from tests.bench.http import Answer
from tests.bench.installed import Site, floor
from tests.bench.stage import Bench

__all__ = ["measure_floor"]

_WARM_UP = 60
_IDLE_GAP_S = 0.15
"""Between two requests of one client: effects are rung for after 0.1 s."""


@dataclass(slots=True)
class _Window:
    """What one site did in one window of a pattern."""

    turns: int
    wall_s: float
    took_s: list[float] = field(default_factory=list[float])


async def measure_floor(bench: Bench) -> Result:
    """Measure throughput, latencies and a burst on both, in turns."""
    sizes = bench.sizes
    patterns: dict[str, Callable[[Site], Awaitable[_Window]]] = {
        "wait": lambda site: _closed_loop(site, _post_wait, sizes.clients, sizes.turns_s / sizes.rounds),
        "then": lambda site: _closed_loop(site, _post_then_wait, sizes.clients, sizes.turns_s / sizes.rounds),
        "idle wait": lambda site: _one_by_one(site, _post_wait, sizes.waits // sizes.rounds),
        "idle then": lambda site: _one_by_one(site, _post_then_wait, sizes.waits // sizes.rounds),
        "first event": lambda site: _one_by_one(site, _first_event, sizes.streams // sizes.rounds),
        "burst": lambda site: _burst(site, sizes.concurrent, sizes.turn_s),
    }
    cpu: dict[str, Mapping[str, float]] = {}
    async with floor(bench.servers, preloaded=bench.preloaded) as least, bench.site() as fleet:
        sites = {"floor": least, "fleet": fleet}
        windows: dict[tuple[str, str], list[_Window]] = {}
        for site in sites.values():
            await _closed_loop(site, _post_wait, 4, 2.0, most=_WARM_UP)
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
    windows: Mapping[tuple[str, str], list[_Window]], cpu: Mapping[str, Mapping[str, float]], clients: int, burst: int
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
        for pattern in ("idle wait", "idle then", "first event")
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


async def _post_wait(site: Site, message: str) -> float:
    answer = await site.client.post("/v1/runs/wait", {"message": message})
    _expect(answer)
    return answer.ended_s - answer.began_s


async def _post_then_wait(site: Site, message: str) -> float:
    posted = await site.client.post("/v1/runs", {"message": message})
    _expect(posted)
    answer = await site.client.get(f"/v1/runs/{posted.json()['id']}/wait")
    _expect(answer)
    return answer.ended_s - posted.began_s


async def _first_event(site: Site, message: str) -> float:
    first_s: list[float] = []

    def see(piece: bytes, at_s: float) -> None:
        if not first_s and b"event: stream_start" in piece:
            first_s.append(at_s)

    answer = await site.client.post("/v1/runs/stream", {"message": message}, on_piece=see)
    _expect(answer)
    return first_s[0] - answer.began_s


async def _closed_loop(
    site: Site, turn: Callable[[Site, str], Awaitable[float]], clients: int, seconds: float, most: int = 10**9
) -> _Window:
    began_s = time.perf_counter()
    took_s: list[float] = []

    async def client() -> None:
        while time.perf_counter() < began_s + seconds and len(took_s) < most:
            took_s.append(await turn(site, "And again"))

    await asyncio.gather(*(client() for _ in range(clients)))
    return _Window(len(took_s), time.perf_counter() - began_s, took_s)


async def _one_by_one(site: Site, turn: Callable[[Site, str], Awaitable[float]], count: int) -> _Window:
    began_s = time.perf_counter()
    took_s: list[float] = []
    for _ in range(max(count, 1)):
        took_s.append(await turn(site, "How long does this take?"))
        await asyncio.sleep(_IDLE_GAP_S)
    return _Window(len(took_s), time.perf_counter() - began_s, took_s)


async def _burst(site: Site, count: int, seconds: float) -> _Window:
    began_s = time.perf_counter()
    took_s = await asyncio.gather(*(_post_wait(site, site.sleeping(seconds)) for _ in range(count)))
    return _Window(count, time.perf_counter() - began_s, list(took_s))


def _expect(answer: Answer) -> None:
    assert answer.status in (200, 202), (answer.status, answer.body)
