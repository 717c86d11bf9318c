"""The life of a run in small tests. Read from top to bottom.

`Harness` is a fleet in the test process: real submission, real workers, real Postgres and Valkey. The test delivers the
doorbells, and the model of `PlannedEngine` follows a plan in the message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.wire import FIELD, decode
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet without workers yet."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield harness
    await harness.close()


async def test_1_a_message_is_a_row_before_it_is_answered_with_accepted(harness: Harness):
    accepted = await harness.submit("What is a fence?")
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["seq"], row["attempt"]) == ("queued", 1, 0)


@proves("security.doorbells")
async def test_2_a_doorbell_carries_ids_and_says_only_that_there_is_work(harness: Harness):
    accepted = await harness.submit("What is a fence?")
    (bell,) = harness.bells.waiting
    assert (bell.run_id, bell.thread_id, bell.queue) == (accepted.run_id, accepted.thread_id, "interactive")


async def test_3_a_worker_that_gets_the_doorbell_claims_the_run_and_the_fence_grows(harness: Harness):
    worker = harness.worker()
    accepted, slot = await harness.begin(worker, plan(doors={0: "thinking"}), "thinking")
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["fence"], row["worker_id"]) == ("running", 1, worker.name)
    harness.engine.open("thinking")
    await slot


async def test_4_each_step_is_in_the_journal_before_the_next_model_call(harness: Harness):
    worker = harness.worker()
    accepted, slot = await harness.begin(worker, plan(["search"], doors={1: "thinking"}), "thinking")
    kinds = [message["kind"] for message in await harness.transcript(accepted.run_id)]
    assert kinds == ["query", "response", "tool_results"]
    harness.engine.open("thinking")
    await slot


async def test_5_the_end_is_one_transaction_and_the_thread_points_to_the_new_turn(harness: Harness):
    worker = harness.worker()
    accepted = await harness.submit("What is a fence?")
    await harness.settle(worker)
    row = await harness.run(accepted.run_id)
    head = await harness.database.fetchval(
        "SELECT head_turn_id FROM threads WHERE id = :thread_id", thread_id=accepted.thread_id
    )
    assert (row["status"], row["turn_id"]) == ("succeeded", head)


async def test_6_a_follower_gets_events_whose_ids_have_no_gaps(harness: Harness):
    worker = harness.worker()
    accepted = await harness.submit(plan(["search"]))
    await harness.settle(worker)
    await worker.publisher.drain(5)
    answer = await harness.redis.xrange(f"nova:run:{accepted.run_id}:events")
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], answer)
    seen = [event for _, fields in entries for event in decode(fields[FIELD])]
    assert [event.cursor for event in seen] == [EventCursor(attempt=1, seq=at + 1) for at in range(len(seen))]
    assert (seen[0].event["type"], seen[-1].event["type"]) == ("stream_start", "stream_end")
    assert (await harness.run(accepted.run_id))["final_event_id"] == str(seen[-1].cursor)


async def test_7_the_next_turn_gets_the_messages_before(harness: Harness):
    worker = harness.worker()
    first = await harness.submit("My name is Ada.")
    await harness.submit("What is my name?", first.thread_id)
    await harness.settle(worker)
    assert harness.engine.model_calls[-1].texts == ("My name is Ada.", "Step 0. Done.", "What is my name?")


async def test_8_when_the_worker_dies_another_continues_after_the_last_committed_step(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    accepted, _ = await harness.begin(worker, plan(["search"], doors={1: "thinking"}), "thinking")
    await worker.crash()
    harness.engine.open("thinking")
    await harness.recover()
    await harness.settle(other)
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["attempt"], row["losses"]) == ("succeeded", 2, 1)
    assert [execution.tool for execution in harness.engine.executions] == ["search"]


async def test_9_redis_may_be_wiped_at_any_moment(harness: Harness):
    worker = harness.worker()
    accepted, slot = await harness.begin(worker, plan(["wait:door"]), "door")
    await harness.redis.flushdb()
    harness.engine.open("door")
    await slot
    assert await harness.status(accepted.run_id) == "succeeded"
