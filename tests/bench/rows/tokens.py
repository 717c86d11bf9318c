"""How long a token takes from the engine to the client's socket."""

import asyncio
import re
import time

from tests.bench.figures import Result, spread
from tests.bench.http import LoadClient
from tests.bench.stage import Bench, scripted
from tests.bench.stamped_worker_names import STAMP, STAMPED_WORKER_APP

_PACE_TOKENS_PER_S = 25.0
"""A model's deltas at 60 to 80 tokens a second come in about this many pieces."""
_FAST_TOKENS_PER_S = 100.0
_STAMPS = re.compile(rb'"text":" (\d{10,})"')


async def measure_tokens(bench: Bench) -> Result:
    """Several clients follow turns whose tokens are the time at which the engine emitted them."""
    sizes = bench.sizes
    async with bench.stage(worker_app=STAMPED_WORKER_APP) as stage:
        with stage.meter() as cpu:
            took_s = await _follow(stage.client, sizes.token_streams, sizes.tokens, _PACE_TOKENS_PER_S)
        fast_s = await _follow(stage.client, sizes.token_streams, sizes.tokens, _FAST_TOKENS_PER_S)
    fast = {figure.label: figure.value for figure in spread(fast_s, bounds_ms={})}
    return Result(
        "tokens",
        f"engine token → client's SSE, {sizes.token_streams} streams at {_PACE_TOKENS_PER_S:g} tokens/s",
        spread(took_s, bounds_ms={"p50": 5, "p99": 25}),
        notes=(
            f"At {_FAST_TOKENS_PER_S:g} tokens/s a stream: p50 {fast['p50']:.1f}, p99 {fast['p99']:.1f} ms. There "
            "tokens wait for the next flush of their run, at most 20 ms away (NOVA_STREAMS__FLUSH_MS).",
        ),
        details={"tokens": len(took_s), "fast_ms": fast, **cpu.details(sizes.token_streams)},
    )


async def _follow(client: LoadClient, streams: int, tokens: int, tokens_per_s: float) -> list[float]:
    message = scripted({"say": f"{STAMP} " * tokens, "tokens_per_s": tokens_per_s})
    took_s: list[float] = []

    async def follow() -> None:
        seen = 0

        def see(piece: bytes, _: float) -> None:
            nonlocal seen
            now_ns = time.monotonic_ns()
            stamps = _STAMPS.findall(piece)
            seen += len(stamps)
            took_s.extend((now_ns - int(stamp)) / 1e9 for stamp in stamps)

        answer = await client.post("/v1/runs/stream", {"message": message}, on_piece=see)
        assert answer.status == 200, answer.status
        assert seen == tokens, f"{seen} of {tokens} tokens arrived in whole pieces"

    # Not all at the same instant: real turns are not synchronous.
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(follow())
            await asyncio.sleep(0.037)
    return took_s
