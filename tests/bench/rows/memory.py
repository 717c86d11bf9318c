"""Memory of a turn that waits for its model."""

import asyncio

from tests.bench.figures import Figure, Result
from tests.bench.machine import pss_mb, rss_mb
from tests.bench.stage import Bench, scripted

_SPARE_SLOTS = 24
_LONGEST_S = 600

_RUNNING = "SELECT count(*) = :count FROM runs WHERE status = 'running'"


async def measure_memory(bench: Bench) -> Result:
    """Compare an idle worker with one that holds many turns."""
    count = bench.sizes.in_flight
    message = scripted({"sleep_s": _LONGEST_S})
    async with bench.stage(slots=count + _SPARE_SLOTS) as stage:
        idle_mb, idle_rss_mb = pss_mb(stage.worker.pid), rss_mb(stage.worker.pid)
        await asyncio.gather(*(stage.client.post("/v1/runs", {"message": message}) for _ in range(count)))
        await stage.until(_RUNNING, count=count)
        busy_mb = pss_mb(stage.worker.pid)
    return Result(
        "memory",
        f"memory per in-flight turn (worker, added; {count} turns)",
        (Figure("", (busy_mb - idle_mb) / count, "MB", bound=0.25, bare=bench.bare.slot_mb if bench.bare else None),),
        notes=(
            f"Proportional set size. The worker idle and warm: {idle_mb:.0f} MB ({idle_rss_mb:.0f} MB resident), "
            f"with {count} turns {busy_mb:.0f} MB. The embedding process is apart. Bare Celery: a thread that sleeps.",
        ),
        details={"idle_pss_mb": idle_mb, "idle_rss_mb": idle_rss_mb, "busy_pss_mb": busy_mb},
    )
