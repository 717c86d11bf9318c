"""Live events of a run: every call ends, usage grows, and each event has a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest

from nova_workers.base.keys import run_events
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.sql.replay import load_recorded_run
from nova_workers.domain.streams.rules.replay import replay
from nova_workers.domain.streams.rules.wire import FIELD, decode
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

ASK: dict[str, Any] = {"name": "ask_user", "input": {"question": "Tea or coffee?"}}


def script(*items: dict[str, Any]) -> str:
    return orjson.dumps({"script": list(items)}).decode()


async def entries_of(harness: Harness, run_id: str) -> list[list[JsonObject]]:
    """Return the live events of an ended run, as they were sent together."""
    for worker in harness.workers:
        await worker.publisher.drain(5)
    entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", await harness.redis.xrange(run_events(run_id)))
    return [[live.event for live in decode(entry[FIELD])] for _, entry in entries]


async def events_of(harness: Harness, run_id: str) -> list[JsonObject]:
    """Return the live events of an ended run."""
    return [event for entry in await entries_of(harness, run_id) for event in entry]


async def replay_of(harness: Harness, run_id: str) -> list[JsonObject]:
    """Return the events of an ended run, from the ledger."""
    async with harness.database.connection() as connection:
        recorded = await load_recorded_run(connection, harness.tenant_id, run_id)
    assert recorded is not None
    return [event.model_dump(mode="json", exclude_none=True) for _, event in replay(recorded, EventCursor())]


def statuses(events: list[JsonObject]) -> list[tuple[str, str]]:
    return [(event["tool_name"], event["status"]) for event in events if event["type"] == "tool_status"]


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet whose scripted agents may ask people, and need approval for saving memories."""
    grants = {"user": {}, "memory": {}}
    await harness.add_agent("asker", {"name": "Asker", "engine": "scripted", "capabilities": grants})
    careful = {"approvals": [{"tool": "memory_*", "decision": "ask"}]}
    await harness.add_agent(
        "careful", {"name": "careful", "engine": "scripted", "capabilities": grants, "permissions": careful}
    )
    return harness


async def test_a_call_that_a_person_answers_completes_for_followers(fleet: Harness):
    worker = fleet.worker()
    run = await fleet.submit(script({"tool": ASK}, {"say": "As you like."}), agent_id="asker")
    await fleet.settle(worker)
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    await fleet.settle(worker)
    events = await events_of(fleet, run.run_id)
    assert statuses(events) == [("ask_user", "started"), ("ask_user", "completed")]
    (ended,) = [event for event in events if event.get("status") == "completed"]
    assert ended["summary"] == "ask_user: coffee"
    kinds = [event["type"] for event in events]
    assert kinds.index("stream_start", 1) < events.index(ended) < kinds.index("step", kinds.index("stream_start", 1))


async def test_a_call_that_a_person_refuses_fails_for_followers(fleet: Harness):
    worker = fleet.worker()
    save = {"name": "memory_save", "input": {"content": "Never"}}
    run = await fleet.submit(script({"tool": save}, {"say": "then not"}), agent_id="careful")
    await fleet.settle(worker)
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=False))
    await fleet.settle(worker)
    assert statuses(await events_of(fleet, run.run_id)) == [("memory_save", "failed")]


async def test_a_call_that_a_cancel_cuts_off_ends_as_interrupted_for_followers(fleet: Harness):
    worker = fleet.worker(control=True)
    await fleet.wait_for_control_channel()
    run, slot = await fleet.begin(worker, plan(["quick", "wait:a"]), "a")
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)
    await slot
    assert statuses(await events_of(fleet, run.run_id)) == [
        ("quick", "started"),
        ("wait:a", "started"),
        ("quick", "completed"),
        ("wait:a", "interrupted"),
    ]


async def test_a_run_that_is_canceled_while_it_waits_ends_its_open_call(fleet: Harness):
    worker = fleet.worker()
    run = await fleet.submit(script({"tool": ASK}, {"say": "never"}), agent_id="asker")
    await fleet.settle(worker)
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)
    await fleet.settle(worker)
    assert statuses(await events_of(fleet, run.run_id)) == [("ask_user", "started"), ("ask_user", "interrupted")]


async def test_usage_events_follow_each_step_and_equal_those_of_the_ledger(harness: Harness):
    worker = harness.worker()
    run = await harness.submit(plan(["look"], ["look"], []))
    await harness.settle(worker)
    live, replayed = await events_of(harness, run.run_id), await replay_of(harness, run.run_id)
    for events in (live, replayed):
        usages = [(event["input_tokens"], event["cost_usd"]) for event in events if event["type"] == "usage"]
        assert usages == [(10, 0.25), (20, 0.5)]
        kinds = [event["type"] for event in events]
        assert [kinds[at + 1] for at, kind in enumerate(kinds) if kind == "usage"] == ["step", "step"]
        assert events[-1]["usage"]["input_tokens"] == 30


async def test_the_start_is_sent_before_the_turn_is_prepared(harness: Harness):
    # What a worker reads for its first run it has in memory for the second, whose turn then waits for nothing.
    worker = harness.worker()
    runs: list[str] = []
    for _ in range(2):
        runs.append((await harness.submit("At once")).run_id)
        await harness.settle(worker)
        await worker.publisher.drain(5)
    first, *others = await entries_of(harness, runs[-1])
    assert [event["type"] for event in first] == ["stream_start"]
    assert others[-1][-1]["type"] == "stream_end"


async def test_the_start_event_names_the_label_and_where_the_answer_is_read(harness: Harness):
    worker = harness.worker()
    thread_id = await harness.thread()
    await harness.database.execute("UPDATE threads SET label = 'support' WHERE id = :thread_id", thread_id=thread_id)
    run = await harness.submit("hi", thread_id, metadata={"channel": "telegram", "to": "4711", "mine": 1})
    await harness.settle(worker)
    for events in (await events_of(harness, run.run_id), await replay_of(harness, run.run_id)):
        assert (events[0]["label"], events[0]["target"]) == ("support", {"channel": "telegram", "to": "4711"})
    plain = await harness.submit("hi")
    await harness.settle(worker)
    assert "target" not in (await events_of(harness, plain.run_id))[0]


async def test_every_event_has_its_time_also_in_a_replay(harness: Harness):
    worker = harness.worker()
    before = datetime.now(UTC)
    run = await harness.submit(plan(["look"], []))
    await harness.settle(worker)
    after = datetime.now(UTC)
    for events in (await events_of(harness, run.run_id), await replay_of(harness, run.run_id)):
        times = [datetime.fromisoformat(event["at"]) for event in events]
        assert all(before <= time <= after for time in times)
        assert times == sorted(times)
