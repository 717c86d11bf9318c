"""Measure what the openai engine costs beside the bare SDK on the same stream from the same server, in each wire form.

    python -m tests.bench.openai_engine [--turns N] [--tokens N]

CPU time of this process, the server in a process of its own: a token and a turn of the SDK's stream, and of the whole
engine with callbacks. Ends with 1 when a bound of the engine is missed.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import uvloop
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from rich.console import Console
from rich.table import Table

from nova_workers.contracts.engine import EngineCallbacks, EngineOptions
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from tests.bench.engine import BOUND_MS_A_TOKEN, BOUND_MS_A_TURN, cost_ms
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

FORMS: tuple[WireForm, ...] = ("chat", "responses")
Turn = Callable[[int], Awaitable[object]]


async def _serve(ready: Connection, sizes: tuple[int, ...]) -> None:
    async with model_server() as server:
        for tokens in sizes:
            _answer(server, tokens)
        ready.send(server.url)
        await asyncio.Event().wait()


def _answer(server: ModelServer, tokens: int) -> None:
    """Answer a prompt that is a number with so many tokens."""
    asked = f"{tokens} tokens"

    def matches(_: Mapping[str, str], body: Mapping[str, Any]) -> bool:
        return asked in str(body)

    server.reply_when(matches, Stream((Part("text", [" token"] * tokens),)))


def _server_process(ready: Connection, sizes: tuple[int, ...]) -> None:
    uvloop.run(_serve(ready, sizes))


@contextlib.contextmanager
def _server(*sizes: int) -> Generator[str]:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_server_process, args=(theirs, sizes), daemon=True)
    process.start()
    try:
        yield f"{ours.recv()}/v1"
    finally:
        process.terminate()
        process.join()


def _bare(client: AsyncOpenAI, form: WireForm) -> Turn:
    async def chat(tokens: int) -> None:
        messages: Any = [{"role": "user", "content": f"{tokens} tokens"}]
        async with await client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            async for _ in stream:
                pass

    async def responses(tokens: int) -> None:
        async with await client.responses.create(model="m", input=f"{tokens} tokens", stream=True) as stream:
            async for _ in stream:
                pass

    return chat if form == "chat" else responses


def _whole(engine: OpenAIEngine) -> Turn:
    async def turn(tokens: int) -> None:
        seen: list[object] = []
        callbacks = EngineCallbacks(on_token=seen.append, on_event=seen.append)
        result = await engine.run(f"{tokens} tokens", EngineOptions(model="m"), "sandbox", callbacks=callbacks)
        assert result.error is None, result.error

    return turn


async def _measure(tokens: int, turns: int) -> int:
    console = Console(stderr=True)
    table = Table("", "CPU µs a token", "CPU ms a turn", "wall ms a turn")
    verdicts: list[tuple[str, bool]] = []
    with _server(1, tokens) as url:
        for form in FORMS:
            provider = OpenAIProvider("local", url, form, (Key(api_key="k"),), models=("m",))
            engine = OpenAIEngine(Catalog([provider]))
            client = AsyncOpenAI(api_key="k", base_url=url, http_client=DefaultAsyncHttpxClient())
            bare = await cost_ms(_bare(client, form), tokens, turns)
            whole = await cost_ms(_whole(engine), tokens, turns)
            await engine.close()
            await client.close()
            for name, (token_ms, turn_ms, wall_ms) in ((f"SDK, {form}", bare), (f"engine, {form}", whole)):
                table.add_row(name, f"{token_ms * 1000:.0f}", f"{turn_ms:.2f}", f"{wall_ms:.2f}")
            over_token_ms, over_turn_ms = whole[0] - bare[0], whole[1] - bare[1]
            said = f"{form}, over the SDK's stream: {over_token_ms:.3f} ms a token, {over_turn_ms:.2f} ms a turn"
            verdicts.append((said, over_token_ms < BOUND_MS_A_TOKEN and over_turn_ms < BOUND_MS_A_TURN))
    console.print(table)
    for said, met in verdicts:
        console.print(f"{'met' if met else 'MISSED'}  {said}", style="green" if met else "red")
    return 0 if all(met for _, met in verdicts) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.openai_engine", description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=500)
    options = parser.parse_args(arguments)
    return uvloop.run(_measure(options.tokens, options.turns))


if __name__ == "__main__":
    sys.exit(main())
