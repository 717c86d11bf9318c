"""Measure the cost of the anthropic engine and of the bare SDK, on the same stream from the same server.

    python -m tests.bench.engine [--turns N] [--tokens N] [--at-once N]

CPU time of this process, the server in a process of its own: a token and a turn of the SDK's raw stream, of its stream
helper, and of the whole engine with all callbacks; wall time of a turn; and the memory of many turns that stream at the
same time. Ends with 1 when a bound of the engine is missed.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import psutil
import uvloop
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from rich.console import Console
from rich.table import Table

from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, StepRecord, StepVerdict
from nova_workers.engines.anthropic import AnthropicEngine

BOUND_MS_A_TOKEN = 1.0
BOUND_MS_A_TURN = 15.0
BOUND_MB_A_TURN = 0.25
_MODEL = "claude-sonnet-5-5"
_SHORT, _TRICKLE_S = 1, 6.0


async def _serve(ready: Connection) -> None:
    """Answer a prompt ``"<tokens> <seconds>"`` with this number of tokens over these seconds."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length:")[1].split("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                tokens, seconds = body["messages"][-1]["content"][0]["text"].split()
                await _stream(writer, int(tokens), float(seconds))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _stream(writer: asyncio.StreamWriter, tokens: int, seconds: float) -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": _MODEL}
    usage = {"input_tokens": 10, "output_tokens": 1}
    block = {"type": "text", "text": ""}
    head = _event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    head += _event("content_block_start", index=0, content_block=block)
    token = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": " token"})
    tail = _event("content_block_stop", index=0)
    tail += _event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage)
    tail += _event("message_stop")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    _chunk(writer, head)
    bursts = 50 if seconds else 1
    for _ in range(bursts):
        _chunk(writer, token * (tokens // bursts or 1))
        await writer.drain()
        await asyncio.sleep(seconds / bursts)
    _chunk(writer, tail)
    _chunk(writer, b"")
    await writer.drain()


def _event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _server_process(ready: Connection) -> None:
    uvloop.run(_serve(ready))


@contextlib.contextmanager
def _model_server() -> Generator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_server_process, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _request(tokens: int) -> dict[str, Any]:
    content = [{"type": "text", "text": f"{tokens} 0"}]
    return {"model": _MODEL, "max_tokens": 8192, "messages": [{"role": "user", "content": content}]}


async def cost_ms(turn: Callable[[int], Awaitable[object]], tokens: int, turns: int) -> tuple[float, float, float]:
    """Return CPU ms a token, CPU ms a turn without its tokens, and wall ms of a short turn."""
    for _ in range(20):
        await turn(_SHORT)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(turns):
        await turn(_SHORT)
    short_ms = (time.process_time() - cpu_s) * 1000 / turns
    wall_ms = (time.perf_counter() - wall_s) * 1000 / turns
    cpu_s = time.process_time()
    for _ in range(turns):
        await turn(tokens)
    long_ms = (time.process_time() - cpu_s) * 1000 / turns
    return (long_ms - short_ms) / (tokens - _SHORT), short_ms, wall_ms


def _callbacks() -> EngineCallbacks:
    seen: list[object] = []

    async def on_step(step: StepRecord) -> StepVerdict:
        seen.clear()
        return "continue"

    return EngineCallbacks(on_token=seen.append, on_event=seen.append, on_step=on_step)


async def _memory_mb(engine: AnthropicEngine, at_once: int) -> float:
    """Return the memory that a streaming turn adds."""
    process = psutil.Process()

    async def turns(number: int) -> float:
        prompt = f"500 {_TRICKLE_S}"
        running = [
            asyncio.create_task(engine.run(prompt, EngineOptions(model=_MODEL), "sandbox", callbacks=_callbacks()))
            for _ in range(number)
        ]
        await asyncio.sleep(_TRICKLE_S / 2)
        streaming = process.memory_info().rss
        results = await asyncio.gather(*running)
        assert all(result.error is None for result in results), results[0]
        return streaming

    await turns(10)
    gc.collect()
    before = process.memory_info().rss
    return (await turns(at_once) - before) / at_once / 2**20


async def _measure(tokens: int, turns: int, at_once: int) -> int:
    console = Console(stderr=True)
    with _model_server() as url:
        engine = AnthropicEngine(api_key="k", base_url=url, max_connections=at_once + 10)
        client = AsyncAnthropic(api_key="k", base_url=url, http_client=DefaultAsyncHttpxClient())
        callbacks = _callbacks()

        async def raw(count: int) -> None:
            async with await client.beta.messages.create(**_request(count), stream=True) as stream:
                async for _ in stream:
                    pass

        async def helper(count: int) -> None:
            async with client.beta.messages.stream(**_request(count)) as stream:
                async for _ in stream:
                    pass

        async def ours(count: int) -> None:
            result = await engine.run(f"{count} 0", EngineOptions(model=_MODEL), "sandbox", callbacks=callbacks)
            assert result.error is None, result.error

        costs = {
            name: await cost_ms(turn, tokens, turns)
            for name, turn in (("SDK, raw stream", raw), ("SDK, stream helper", helper), ("engine", ours))
        }
        added_mb = await _memory_mb(engine, at_once)
        await engine.close()
        await client.close()
    table = Table("", "CPU µs a token", "CPU ms a turn", "wall ms a turn")
    for name, (token_ms, turn_ms, wall_ms) in costs.items():
        table.add_row(name, f"{token_ms * 1000:.0f}", f"{turn_ms:.2f}", f"{wall_ms:.2f}")
    console.print(table)
    bare, engine_costs = costs["SDK, raw stream"], costs["engine"]
    over_token_ms, over_turn_ms = engine_costs[0] - bare[0], engine_costs[1] - bare[1]
    verdicts = [
        (f"over the raw stream, a token: {over_token_ms:.3f} ms", over_token_ms < BOUND_MS_A_TOKEN, BOUND_MS_A_TOKEN),
        (f"over the raw stream, a turn: {over_turn_ms:.2f} ms", over_turn_ms < BOUND_MS_A_TURN, BOUND_MS_A_TURN),
        (f"{at_once} turns at once, each: {added_mb:.3f} MB", added_mb < BOUND_MB_A_TURN, BOUND_MB_A_TURN),
    ]
    for said, met, bound in verdicts:
        console.print(f"{'met' if met else 'MISSED'}  {said} (bound {bound:g})", style="green" if met else "red")
    return 0 if all(met for _, met, _ in verdicts) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine", description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=500)
    options = parser.parse_args(arguments)
    return uvloop.run(_measure(options.tokens, options.turns, options.at_once))


if __name__ == "__main__":
    sys.exit(main())
