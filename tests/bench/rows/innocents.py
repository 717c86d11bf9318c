"""The wait for messages to a model whose provider refuses one conversation each time, and to one that refuses none."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from nova_workers.base.stopping import stop_tasks
from tests.bench.figures import Figure, Result, percentile
from tests.bench.http import LoadClient
from tests.bench.stage import Bench, Stage
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server
from tests.support.waiting import until

_POISON = "This conversation cannot be answered."
_REFUSALS = 3
"""After so many, the retries of one run had opened the breaker of the whole fleet."""
_CALM, _BESIDE = "claude-haiku-4-5", "claude-sonnet-5-5"
_GAP_S = 0.02


async def measure_innocents(bench: Bench) -> Result:
    """Send messages one by one, in turns to two models; a run with one of them is refused at each of its retries."""
    took_s: dict[str, list[float]] = {_CALM: [], _BESIDE: []}
    async with _fleet(bench) as (server, stage), _refused(server, stage):
        for at in range(2 * bench.sizes.innocents):
            model = (_CALM, _BESIDE)[at % 2]
            answer = await stage.client.post("/v1/runs/wait", {"agent_id": model, "message": "How long?"})
            assert b'"status":"succeeded"' in answer.body, answer.body
            took_s[model].append(answer.ended_s - answer.began_s)
            await asyncio.sleep(_GAP_S)
        refusals = _refusals(server)
    calm, beside = (percentile(took_s[model], 0.95) for model in (_CALM, _BESIDE))
    return Result(
        "innocents",
        "POST and wait while the provider refuses another conversation with the model, beside none refused",
        (
            Figure("p95", (beside / calm - 1) * 100, "% more", bound=20),
            Figure("p95 with none refused", calm * 1000, "ms"),
            Figure("p95 beside a refused one", beside * 1000, "ms"),
            Figure("slowest beside a refused one", max(took_s[_BESIDE]) * 1000, "ms"),
        ),
        notes=(
            f"{bench.sizes.innocents} messages to each of two models, in turns, one by one. One of the models refused "
            f"another thread's runs, {refusals} requests, with 500. The engine is anthropic, its model server here.",
        ),
        details={f"{model}_ms": [each * 1000 for each in values] for model, values in took_s.items()},
    )


@asynccontextmanager
async def _fleet(bench: Bench) -> AsyncGenerator[tuple[ModelServer, Stage]]:
    async with model_server() as server:
        server.reply(Stream((Part("text", ["Well", " done"]),)))
        server.reply_when(lambda _, body: _is_refused(body), Status(500, "api_error", "Internal server error"))
        env = {"NOVA_DEFAULT_ENGINE": "anthropic", "NOVA_MODEL__API_KEY": "k", "NOVA_MODEL__BASE_URL": server.url}
        async with bench.stage(env=env) as stage:
            for model in (_CALM, _BESIDE):
                made = await stage.client.post("/v1/agents", {"id": model, "name": model, "model": model})
                assert made.status == 201, made.body
            yield server, stage


@asynccontextmanager
async def _refused(server: ModelServer, stage: Stage) -> AsyncGenerator[None]:
    """Keep a thread busy with runs that are refused; the block begins when the first was refused several times."""
    client = LoadClient(stage.fleet.api_url, stage.fleet.api_key)

    async def send() -> None:
        message = {"agent_id": _BESIDE, "message": _POISON}
        while True:
            answer = await client.post("/v1/runs/wait", message)
            message = {"thread_id": answer.json()["thread_id"], "message": _POISON}

    sending = asyncio.create_task(send())
    try:
        await until(lambda: sending.done() or _refusals(server) >= _REFUSALS)
        assert not sending.done(), sending
        yield
    finally:
        await stop_tasks([sending])
        client.close()


def _is_refused(body: dict[str, Any]) -> bool:
    return _POISON in str(body["messages"])


def _refusals(server: ModelServer) -> int:
    return sum(map(_is_refused, server.requests))
