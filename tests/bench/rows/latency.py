"""How long a client waits: for the acceptance of its message, for the first event, for the result."""

import asyncio
import time

from tests.bench.figures import Result, spread
from tests.bench.stage import Bench, Stage

_GAP_S = 0.15
"""Between two requests to an idle fleet: effects are rung for after 0.1 s, and a text is embedded in 0.01 s."""


async def measure_accept(bench: Bench) -> Result:
    """POST a run → 202, at a fixed rate whatever the answers take (open loop); the worker executes what comes."""
    sizes = bench.sizes
    async with bench.stage() as stage:
        with stage.meter() as cpu:
            late_s, took_s = await _post_at_rate(stage, rate=sizes.accepts_per_s, seconds=sizes.accepts_s)
        await stage.until_idle()
    return Result(
        "accept",
        f"API accept (POST run → 202) at {sizes.accepts_per_s:g} rps, open loop",
        spread(took_s, bounds_ms={"p50": 10, "p99": 50}, bare_s=bench.bare.publishes_s if bench.bare else ()),
        notes=(
            "The worker executes the accepted turns and their effects meanwhile, on the same cores. Time counts from "
            "when a request was due, so that a slow answer is not hidden by the next being late. Bare Celery: "
            "one `send_task`, from an idle process.",
        ),
        details={"sent_late_ms_max": max(late_s) * 1000, **cpu.details(len(took_s))},
    )


async def measure_wait(bench: Bench) -> Result:
    """POST and wait for the result, one client, nothing else to do."""
    took_s: list[float] = []
    async with bench.stage() as stage:
        with stage.meter() as cpu:
            for _ in range(bench.sizes.waits):
                answer = await stage.post_and_wait("How long does this take?")
                took_s.append(answer.ended_s - answer.began_s)
                await asyncio.sleep(_GAP_S)
    return Result(
        "wait",
        "POST and wait for the result, idle fleet",
        spread(took_s, bounds_ms={"p50": 15, "p95": 30}, bare_s=bench.bare.pings_s if bench.bare else ()),
        notes=(
            "One request at a time, each after the one before it has left no work. Bare Celery: publish → task done.",
        ),
        details=cpu.details(len(took_s)),
    )


async def measure_first_event(bench: Bench) -> Result:
    """POST and stream: until the first event is at the client."""
    took_s: list[float] = []
    async with bench.stage() as stage:
        with stage.meter() as cpu:
            for _ in range(bench.sizes.streams):
                took_s.append(await _first_event_s(stage))
                await asyncio.sleep(_GAP_S)
    return Result(
        "first-event",
        "POST to first event at the client",
        spread(took_s, bounds_ms={"p50": 12, "p95": 25}, bare_s=bench.bare.pings_s if bench.bare else ()),
        notes=(
            "Create-and-stream, one at a time; the first event is the worker's `stream_start`. "
            "Bare Celery: publish → task done.",
        ),
        details=cpu.details(len(took_s)),
    )


async def _post_at_rate(stage: Stage, *, rate: float, seconds: float) -> tuple[list[float], list[float]]:
    """Post runs at a fixed rate; return by how much each was sent late, and how long each took from when it was due."""
    late_s: list[float] = []
    took_s: list[float] = []

    async def post(due_s: float) -> None:
        answer = await stage.client.post("/v1/runs", {"message": "Hello"})
        assert answer.status == 202, (answer.status, answer.body)
        late_s.append(answer.began_s - due_s)
        took_s.append(answer.ended_s - due_s)

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due_s = began_s + number / rate
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))
            group.create_task(post(due_s))
    return late_s, took_s


async def _first_event_s(stage: Stage) -> float:
    first_s: list[float] = []

    def see(piece: bytes, at_s: float) -> None:
        if not first_s and b"event: stream_start" in piece:
            first_s.append(at_s)

    answer = await stage.client.post("/v1/runs/stream", {"message": "What comes first?"}, on_piece=see)
    assert answer.status == 200, answer.status
    return first_s[0] - answer.began_s
