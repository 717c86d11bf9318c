"""One stream of what all agents of an orchestration do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import httpx2
import orjson
import pytest
from redis.asyncio import Redis
from rich.console import Console

from api.streaming.tree_delivery import TreeDelivery
from nova_workers.base.keys import orchestration_events, run_events
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.contracts import events as live
from nova_workers.contracts.http.orchestrations import OrchestrationTree
from nova_workers.contracts.orchestration.events import tree_record_adapter
from nova_workers.domain.streams.rules.publisher import TreeSource
from tests.integration.api.manual_worker import Tenant
from tests.integration.api.orchestrations.conftest import PATH, Orchestrated
from tests.requirements import proves
from tests.support.harness.trees import call, complete, script, spawn


class Frame(NamedTuple):
    """One server-sent event of an orchestration."""

    id: str
    type: str
    data: dict[str, Any]


@asynccontextmanager
async def listening(
    orchestrated: Orchestrated, orchestration_id: str, after: str | None = None
) -> AsyncGenerator[AsyncGenerator[Frame]]:
    headers = {} if after is None else {"Last-Event-ID": after}
    path = f"{PATH}/{orchestration_id}/events"
    async with orchestrated.api.http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(_frames(response)) as feed:
            yield feed


async def _frames(response: httpx2.Response) -> AsyncGenerator[Frame]:
    async for event in httpx2.EventSource(response):
        yield Frame(event.id, event.event, orjson.loads(event.data))


async def whole(orchestrated: Orchestrated, orchestration_id: str, after: str | None = None) -> list[Frame]:
    """Return the events of an orchestration up to the end of its stream."""
    async with asyncio.timeout(60), listening(orchestrated, orchestration_id, after) as feed:
        return [frame async for frame in feed]


def states(frames: list[Frame], agent_id: str) -> list[str]:
    """Return the states of an agent in the order of a stream."""
    events = [frame.data["event"] for frame in frames if frame.type == "agent_state"]
    return [event["state"] for event in events if event["agent_id"] == agent_id]


@proves("orchestration.events")
async def test_one_stream_has_what_all_agents_do(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(
        spawn(call("report_progress", status="half", percent=50), complete("part"), name="Worker"), complete("all")
    )
    async with listening(orchestrated, view["id"]) as feed:
        playing = asyncio.create_task(orchestrated.settle())
        async with asyncio.timeout(60):
            frames = [frame async for frame in feed]
        await playing
    master, child = (await orchestrated.get(view["id"], "/tree"))["agents"]
    assert states(frames, master["id"]) == [
        "PENDING",
        "STARTING",
        "RUNNING",
        "WAITING_FOR_CHILD",
        "RUNNING",
        "COMPLETED",
    ]
    assert states(frames, child["id"]) == ["PENDING", "STARTING", "RUNNING", "COMPLETED"]
    waiting = next(
        f.data["event"]
        for f in frames
        if f.type == "agent_state" and "waits_for" in f.data["event"] and f.data["event"]["waits_for"]
    )
    assert waiting["waits_for"] == [child["id"]]
    sent = [frame.data["event"] for frame in frames if frame.type == "agent_message"]
    assert [(each["message_type"], each.get("percent")) for each in sent] == [
        ("SPAWN_REQUEST", None),
        ("PROGRESS_UPDATE", 50),
        ("TASK_RESULT", None),
    ]
    assert {frame.data["agent_id"] for frame in frames if frame.type == "tool_status"} == {master["id"], child["id"]}
    assert [frame.data["event"]["summary"] for frame in frames if frame.type == "orchestration_end"] == ["all"]


@proves("orchestration.events")
async def test_what_waiting_agents_have_used_is_in_the_stream_and_in_drawings_of_it(orchestrated: Orchestrated) -> None:
    spent = {"usage": {"input_tokens": 1_000, "output_tokens": 100, "cost_usd": 0.02}}
    asks = spawn(spent, call("ask_user", question="Go on?"), spent, complete("part"), name="Worker")
    view = await orchestrated.run(spent, asks, spent, complete("all"))
    tree = OrchestrationTree.model_validate(await orchestrated.get(view["id"], "/tree"))
    assert [agent.usage.cost_usd for agent in tree.agents] == [0.02, 0.02]
    drawn = TreeView()
    async with asyncio.timeout(60), listening(orchestrated, view["id"]) as feed:
        async for frame in feed:
            record = tree_record_adapter.validate_python(frame.data)
            # The drawing begins a minute and a half after the agents.
            event = record.event.model_copy(update={"at": datetime.now(UTC) - timedelta(seconds=95)})
            drawn.take(record.model_copy(update={"event": event}))
            if "2 agents · $0.0400" in _text_of(drawn):
                break
    assert _text_of(drawn).count("$0.0200") == 2
    assert _text_of(drawn).count("1 min 35 s") == 3
    await orchestrated.api.http.post(f"/v1/runs/{tree.agents[1].run_id}/answers", json={"text": "yes"})
    await orchestrated.settle()
    for frame in await whole(orchestrated, view["id"]):
        drawn.take(tree_record_adapter.validate_python(frame.data))
    assert "2 agents · $0.0800" in _text_of(drawn)


def _text_of(view: TreeView) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(view.render())
    return captured.get()


@proves("orchestration.events")
async def test_a_client_resumes_exactly_after_any_event(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(spawn({"say": "one two three"}, complete("part")), complete("all"))
    frames = await whole(orchestrated, view["id"])
    assert len({frame.id for frame in frames}) == len(frames)
    for position in range(0, len(frames) - 1, 3):
        assert await whole(orchestrated, view["id"], frames[position].id) == frames[position + 1 :]
    last = await orchestrated.api.http.get(f"{PATH}/{view['id']}/events", headers={"Last-Event-ID": frames[-1].id})
    assert last.status_code == 204
    bad = await orchestrated.api.http.get(f"{PATH}/{view['id']}/events", params={"after": "1-2"})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_cursor")


async def test_a_worker_that_lost_its_run_adds_nothing_to_the_stream(orchestrated: Orchestrated, redis: Redis) -> None:
    publisher = orchestrated.harness.publisher
    tree = TreeSource("orc_x", "oag_x")
    for attempt, text in ((2, "new"), (1, "stale")):
        publisher.open("run_x", attempt, tree).emit(live.Token(text=text), urgent=True)
        await publisher.drain(5)
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(orchestration_events("orc_x")))
    assert len(entries) == 1
    assert b"new" in entries[0][1][b"p"]


async def test_a_lost_stream_is_replayed_from_the_ledger(orchestrated: Orchestrated, redis: Redis) -> None:
    view = await orchestrated.run(spawn(complete("part")), complete("all"))
    await redis.flushdb()
    frames = await whole(orchestrated, view["id"])
    assert [frame.type for frame in frames if frame.type != "agent_state"] == [
        "agent_message",
        "agent_message",
        "orchestration_end",
    ]
    assert states(frames, view["master_id"]) == ["COMPLETED"]
    assert await whole(orchestrated, view["id"], frames[1].id) == frames[2:]


async def test_an_end_that_arrives_while_the_ledger_is_read_is_sent_once(
    orchestrated: Orchestrated, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = await orchestrated.run(complete("all"))
    name = orchestration_events(view["id"])
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(name))
    end_id, end = next((each_id, fields) for each_id, fields in entries if b"orchestration_end" in fields[b"p"])
    await redis.xdel(name, end_id)
    was_published = TreeDelivery._was_published  # pyright: ignore[reportPrivateUsage]

    async def publish_first(delivery: TreeDelivery, finished_at: datetime) -> bool:
        await redis.xadd(name, {"p": end[b"p"]})
        return await was_published(delivery, finished_at)

    monkeypatch.setattr(TreeDelivery, "_was_published", publish_first)
    frames = await whole(orchestrated, view["id"])
    assert [frame.type for frame in frames].count("orchestration_end") == 1
    assert frames[-1].type == "orchestration_end"


async def test_a_continued_orchestration_has_a_second_end(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(complete("first"))
    await orchestrated.post(view["id"], "/continue", task=script(complete("second")))
    await orchestrated.settle()
    frames = await whole(orchestrated, view["id"])
    assert [f.data["event"]["summary"] for f in frames if f.type == "orchestration_end"] == ["first", "second"]


@proves("orchestration.events")
async def test_a_question_that_its_worker_did_not_publish_comes_from_the_ledger_once(
    orchestrated: Orchestrated, redis: Redis
) -> None:
    view = await orchestrated.start(spawn(call("ask_user", question="Which file?")), complete("done"))
    await orchestrated.settle()
    database = orchestrated.harness.database
    await database.execute("UPDATE run_waits SET created_at = now() - interval '1 minute'")
    async with asyncio.timeout(60), listening(orchestrated, view["id"]) as feed:
        published = await _question(feed)
    _, child = (await orchestrated.get(view["id"], "/tree"))["agents"]
    for name in (orchestration_events(view["id"]), run_events(child["run_id"])):
        entries = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(name))
        await redis.xdel(name, *(entry_id for entry_id, fields in entries if b'"waiting"' in fields[b"p"]))
    async with asyncio.timeout(60), listening(orchestrated, view["id"]) as feed:
        asked = await _question(feed)
        answers = {"text": "parse.py"}
        await orchestrated.api.http.post(f"/v1/runs/{child['run_id']}/answers", json=answers)
        playing = asyncio.create_task(orchestrated.settle())
        rest = [frame async for frame in feed]
        await playing
    assert rest[-1].type == "orchestration_end"
    assert "user" not in [frame.data["event"].get("kind") for frame in rest]
    expected = published.data | {"event": published.data["event"] | {"at": asked.data["event"]["at"]}}
    assert asked.data | {"event_id": published.data["event_id"]} == expected


async def test_a_published_question_is_not_sent_again_to_a_client_that_has_it(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(call("ask_user", question="Which file?"), complete("done"))
    await orchestrated.settle()
    await orchestrated.harness.database.execute("UPDATE run_waits SET created_at = now() - interval '1 minute'")
    async with asyncio.timeout(60), listening(orchestrated, view["id"]) as feed:
        await _question(feed)
        last = await anext(feed)
    async with asyncio.timeout(60), listening(orchestrated, view["id"], last.id) as feed:
        await orchestrated.post(view["id"], "/kill")
        assert "waiting" not in [frame.type async for frame in feed]


async def _question(feed: AsyncGenerator[Frame]) -> Frame:
    return await anext(frame async for frame in feed if frame.data["event"].get("kind") == "user")


async def test_another_tenant_does_not_see_the_stream(orchestrated: Orchestrated, other_tenant: Tenant) -> None:
    view = await orchestrated.start(complete("x"))
    async with orchestrated.api.client(other_tenant.key) as stranger:
        assert (await stranger.get(f"{PATH}/{view['id']}/events")).status_code == 404
