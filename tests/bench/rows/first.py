"""What a newcomer sees: how long the first message takes, beside the tenth; and what a worker needs for that."""

import asyncio
import os
import statistics
from collections.abc import Mapping

from nova_workers.engines.anthropic.rehearsal import ANSWER
from nova_workers.engines.http.rehearsing import answering
from tests.bench.figures import Figure, Result
from tests.bench.installed import PROCESSES, Site
from tests.bench.machine import rss_mb
from tests.bench.stage import Bench
from tests.support.processes.inspection import command_lines, descendants

_RATIO = 1.3
_UNLOADED_MB = 90.0
_LOADED_MB: Mapping[str, float] = {"scripted": 150.0}
"""The SDK of Anthropic alone is 40 MB."""
_GAP_S = 0.3
"""Between two messages. The effects of one are done by then."""


async def measure_first(bench: Bench) -> Result:
    """Start the fleet as users do, send it messages one by one, and look at its worker."""
    figures: list[Figure] = []
    async with answering(ANSWER) as provider_url:
        engines: Mapping[str, Mapping[str, str]] = {
            "scripted": {},
            "anthropic": {
                "NOVA_DEFAULT_ENGINE": "anthropic",
                "NOVA_MODEL__API_KEY": "none",
                "NOVA_MODEL__BASE_URL": provider_url,
            },
        }
        for engine, given in engines.items():
            starts = [await _start(bench, given) for _ in range(bench.sizes.first_starts)]
            first_s, tenth_s, rested_s, loaded_mb = (statistics.median(each) for each in zip(*starts, strict=True))
            figures += [
                Figure(f"{engine}: the first", first_s * 1000, "ms"),
                Figure(f"{engine}: the tenth", tenth_s * 1000, "ms"),
                Figure(f"{engine}: one after a pause", rested_s * 1000, "ms"),
                Figure(f"{engine}: first over tenth", first_s / tenth_s, "times", bound=_RATIO),
                Figure(f"{engine}: first over one after a pause", first_s / rested_s, "times"),
                Figure(f"{engine}: idle worker with it", loaded_mb, "MB", bound=_LOADED_MB.get(engine)),
            ]
    unloaded_mb = await _unloaded_mb(bench)
    return Result(
        "first",
        "first message after `nova up`",
        (*figures, Figure("idle worker without an engine", unloaded_mb, "MB", bound=_UNLOADED_MB)),
        notes=(
            f"POST and wait, {bench.sizes.settled_s:g} s after the fleet is up; medians of {bench.sizes.first_starts} "
            "starts. The tenth is the median of the second half of the messages, and the one after a pause came as "
            "late after them as the first after the start. `anthropic` asks a server on loopback. Memory is resident. "
            "A worker without an engine is one that takes no runs: others load one once they are ready.",
        ),
    )


async def _start(bench: Bench, given: Mapping[str, str]) -> tuple[float, float, float, float]:
    """Return how many seconds the first, the tenth and a message after a pause took, and the worker's memory before.

    After a pause as long as the one before the first message, cores sleep and caches are cold, also in a fleet that has
    answered many. So the difference between these two is what the start costs.
    """
    async with bench.site(given) as site:
        await asyncio.sleep(bench.sizes.settled_s)
        loaded_mb = rss_mb(_worker_pid())
        took_s: list[float] = []
        for _ in range(bench.sizes.first_messages):
            took_s.append(await _message_s(site))
            await asyncio.sleep(_GAP_S)
        await asyncio.sleep(bench.sizes.settled_s)
        rested_s = await _message_s(site)
    return took_s[0], statistics.median(took_s[len(took_s) // 2 :]), rested_s, loaded_mb


async def _message_s(site: Site) -> float:
    answer = await site.client.post("/v1/runs/wait", {"message": "Hello"})
    assert answer.status == 200, (answer.status, answer.body)
    return answer.ended_s - answer.began_s


def _worker_pid() -> int:
    lines = command_lines(descendants(os.getpid()))
    return next(pid for pid, line in lines.items() if PROCESSES["worker"] in line)


async def _unloaded_mb(bench: Bench) -> float:
    async with bench.stage() as stage:
        worker = await stage.fleet.start_worker(queues=("effects", "system"))
        await asyncio.sleep(bench.sizes.settled_s)
        mb = rss_mb(worker.pid)
        worker.kill()
    return mb
