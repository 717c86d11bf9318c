"""A watch on the event loop: how late it runs what is due."""

import asyncio

from nova_workers.base.clock import Clock
from nova_workers.base.observability.metrics import Metrics


async def watch_loop(metrics: Metrics, clock: Clock, *, every_s: float = 0.5) -> None:
    """Measure the loop's lag until canceled.

    A lag is time in which no turn of the process went on: something blocked the loop, or the machine has
    too little CPU.
    """
    while True:
        due_s = clock.monotonic_s() + every_s
        await asyncio.sleep(every_s)
        metrics.loop_lag_s.observe(max(0.0, clock.monotonic_s() - due_s))
