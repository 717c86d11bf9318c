"""Faults of links: slow, lossy, blocked, forgotten, and answers that are lost after the request was executed."""

from __future__ import annotations

import asyncio

from tests.chaos.runner.scenarios.registry import Stage, scenario
from tests.support.servers.fault_proxy import FaultProxy


async def slow(stage: Stage, server: str, least_s: float, most_s: float) -> None:
    """Delay all links to a server for some seconds."""
    delay_s = stage.rng.uniform(least_s, most_s)
    stage.say(f"{delay_s * 1000:.0f} ms each way")
    links = stage.fleet.links_to(server)
    for link in links:
        link.delay_s = delay_s
    try:
        await stage.hold(3, 10)
    finally:
        for link in links:
            link.delay_s = 0.0


async def lossy(stage: Stage, server: str) -> None:
    """Reset the links to a server at random for some seconds."""
    links = stage.fleet.links_to(server)
    resets = stage.rng.randint(5, 20)
    stage.say(f"{resets} resets")
    for _ in range(resets):
        stage.rng.choice(links).reset()
        await asyncio.sleep(stage.rng.uniform(0.02, 0.8))


async def forget(stage: Stage, server: str) -> None:
    """Forget every open connection to a server."""
    for link in stage.fleet.links_to(server):
        link.forget()
    await stage.hold(0.5)


async def block_answers(stage: Stage, server: str) -> None:
    """Let no answer of a server arrive at one process for some seconds."""
    link = _one(stage, server)
    link.blocks_answers = True
    try:
        await stage.hold(2, 10)
    finally:
        link.blocks_answers = False


async def lose_answers(stage: Stage, server: str) -> None:
    """Execute single requests, and reset their connection before the answer, at random processes."""
    times = stage.rng.randint(3, 10)
    stage.say(f"{times} answers")
    for _ in range(times):
        stage.rng.choice(stage.fleet.links_to(server)).loses_answer_to = b""
        await asyncio.sleep(stage.rng.uniform(0.05, 1.0))


def _one(stage: Stage, server: str) -> FaultProxy:
    name = stage.rng.choice([name for name in stage.fleet.links if name.endswith(f">{server}")])
    stage.say(name)
    return stage.fleet.links[name]


@scenario("network", proves=("I1", "I7", "I9"))
async def lossy_client_links(stage: Stage) -> None:
    """Connections of clients to the APIs are reset again and again."""
    links = [*stage.fleet.links_to("api-0"), *stage.fleet.links_to("api-1")]
    for _ in range(stage.rng.randint(5, 20)):
        stage.rng.choice(links).reset()
        await asyncio.sleep(stage.rng.uniform(0.02, 0.8))


@scenario("network", proves=("I1", "I7"))
async def lose_api_answers(stage: Stage) -> None:
    """Requests are executed, and their client gets no answer; it repeats them with the same Idempotency-Key."""
    links = [*stage.fleet.links_to("api-0"), *stage.fleet.links_to("api-1")]
    for _ in range(stage.rng.randint(3, 10)):
        stage.rng.choice(links).loses_answer_to = b"POST "
        await asyncio.sleep(stage.rng.uniform(0.1, 1.0))


@scenario("outside", proves=("I6", "I7"))
async def lossy_model_links(stage: Stage) -> None:
    """Responses of the model break off in the middle."""
    await lossy(stage, "model")


@scenario("outside", proves=("I4", "I7"))
async def block_model_answers(stage: Stage) -> None:
    """The model hangs in the middle of its responses, for one worker."""
    await block_answers(stage, "model")


@scenario("outside", proves=("I6",))
async def lossy_tool_links(stage: Stage) -> None:
    """Tool calls lose their connection, before or after they are executed."""
    await lossy(stage, "tool")


@scenario("outside", proves=("I6",))
async def lose_tool_answers(stage: Stage) -> None:
    """Tool calls are executed, and their results are lost."""
    await lose_answers(stage, "tool")


@scenario("outside", proves=("I5",))
async def lose_webhook_answers(stage: Stage) -> None:
    """Webhooks are received, and the answers are lost: they are sent again."""
    await lose_answers(stage, "hook")
