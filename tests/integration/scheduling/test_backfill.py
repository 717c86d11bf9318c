"""Messages without search data get it in the background, after all other work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import EffectSettings
from nova_workers.base.errors import InvalidInput
from nova_workers.base.keys import broker_queue
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.content import text_block
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.provider import Vector
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.search.sql import backfill as ledger
from nova_workers.domain.threads.rules.past import SaidMessage, turns_of
from nova_workers.domain.threads.sql.importing import import_turns
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.domain.upkeep.rules.backfill import Backfill
from nova_workers.domain.upkeep.sql import cursors as upkeep_cursors
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import seed_run, seed_thread
from tests.integration.history.past_conversations import PastConversations
from tests.integration.scheduling.old_runs import count, old_run
from tests.requirements import proves
from tests.support.data.seeded_embeddings import SeededEmbeddings


class RefusesOneText(SeededEmbeddings):
    """Refuses one text."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if any("question 1" in text for text in texts):
            raise InvalidInput("no", field="text")
        return await super().embed(texts)


class BackfillHarness:
    """Creates backfills on one database."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self.database = database
        self.redis = redis
        self.metrics = Metrics(CollectorRegistry())

    def backfill(self, embedder: Embedder | None = None, **settings: Any) -> Backfill:
        """Return a backfill with an embedder."""
        given = EffectSettings.model_validate({"backfill_every_s": 60, "backfill_busy": 1, **settings})
        return Backfill(self.database, self.redis, embedder, given, self.metrics, clock=SystemClock())

    async def thread(self, tenant_id: str = "ten_1") -> tuple[str, str]:
        """Begin a thread."""
        return await seed_thread(self.database, tenant_id=tenant_id)

    async def talk(self, runs: int, tenant_id: str = "ten_1") -> None:
        """Insert a thread with this many runs, a minute apart."""
        thread = await self.thread(tenant_id)
        for number in range(runs):
            await old_run(
                self.database, f"question {number}", f"answer {number}", thread=thread, days_ago=1 - number / 1440
            )

    async def vectors(self, model: str = "directions", tenant_id: str = "ten_1") -> int:
        """Count the vectors of a model."""
        return await count(
            self.database, "embeddings", "model = :model AND tenant_id = :tenant_id", model=model, tenant_id=tenant_id
        )

    async def all_due(self) -> None:
        """End all pauses and leases, except the wait for another model."""
        await self.database.execute("UPDATE upkeep_cursors SET due_at = now()")

    async def left_alone(self) -> None:
        """Make the cursors untouched for long."""
        await self.database.execute("UPDATE upkeep_cursors SET due_at = now(), worked_at = now() - interval '1 hour'")


@pytest.fixture
def harness(database: Database, redis: Redis) -> BackfillHarness:
    return BackfillHarness(database, redis)


@proves("backfill.finds")
async def test_messages_of_a_time_without_effects_are_found_after_a_tick(harness: BackfillHarness) -> None:
    past, model = PastConversations(harness.database), SeededEmbeddings()
    thread = await harness.thread()
    run = await old_run(harness.database, "My cat is called Miro", "A fine name.", thread=thread)
    assert await past.find("miro") == []
    done = await harness.backfill(model).tick()
    assert (done.runs, done.words, done.vectors) == (1, 2, 2)
    assert await past.find("miro") == [run.message_ids[0]]
    assert await past.find("My cat is called Miro", embedder=model) != []
    assert await harness.vectors() == 2


@proves("backfill.model")
async def test_after_a_change_of_the_model_every_vector_is_replaced(
    harness: BackfillHarness,
) -> None:
    await harness.talk(3)
    await harness.backfill(SeededEmbeddings(model="old")).tick()
    assert await harness.vectors("old") == 6
    new = harness.backfill(SeededEmbeddings(dimensions=8, model="new"))
    await harness.all_due()
    assert (await new.tick()).runs == 0, "a worker with the old setting may still be at it"
    await harness.left_alone()
    done = await new.tick()
    assert (done.vectors, done.dropped, done.words) == (6, 6, 0)
    assert (await harness.vectors("new"), await harness.vectors("old")) == (6, 0)


@proves("backfill.finds", "backfill.model", "threads.imported")
async def test_an_imported_conversation_gets_vectors_if_they_are_asked_for(harness: BackfillHarness) -> None:
    said = [SaidMessage("user", [text_block(f"question {at}")], datetime(2024, 3, 1, tzinfo=UTC)) for at in range(120)]
    for embed in (False, True):
        tenant_id, thread_id = await harness.thread()
        async with harness.database.transaction() as transaction:
            await import_turns(transaction, tenant_id, thread_id, "nova", turns_of(said), embed=embed)
    assert (await harness.backfill(SeededEmbeddings(model="old")).tick()).vectors == 120
    # An archive has neither words nor vectors.
    await harness.database.execute("DELETE FROM embeddings WHERE thread_id = :id", id=thread_id)
    await harness.database.execute("DELETE FROM message_texts WHERE thread_id = :id", id=thread_id)
    await harness.database.execute("DELETE FROM upkeep_cursors WHERE work = 'imports'")
    async with harness.database.transaction() as transaction:
        await upkeep_cursors.add_import_cursors(transaction, tenant_id)
    done = await harness.backfill(SeededEmbeddings(model="old")).tick()
    assert (done.vectors, done.words) == (240, 120)
    await harness.left_alone()
    done = await harness.backfill(SeededEmbeddings(dimensions=8, model="new")).tick()
    assert (done.vectors, done.dropped, done.words) == (240, 240, 0)
    async with harness.database.transaction() as transaction:
        await delete_thread(transaction, tenant_id, thread_id)
    await harness.all_due()
    await harness.backfill(SeededEmbeddings(dimensions=8, model="new")).tick()
    assert await count(harness.database, "upkeep_cursors", "work = 'imports'") == 1
    assert await harness.vectors("new") == 120


@proves("backfill.model")
async def test_a_vector_of_another_model_is_kept_until_there_is_a_new_one(harness: BackfillHarness) -> None:
    await harness.talk(2)
    await harness.backfill(SeededEmbeddings(model="old")).tick()
    away = SeededEmbeddings(model="new")
    away.fails = True
    await harness.left_alone()
    await harness.backfill(away).tick()
    assert await harness.vectors("old") == 4


@proves("backfill.model")
async def test_a_message_that_the_new_model_refuses_keeps_its_old_vector(harness: BackfillHarness) -> None:
    await harness.talk(3)
    await harness.backfill(SeededEmbeddings(model="old")).tick()
    await harness.left_alone()
    done = await harness.backfill(RefusesOneText(model="new")).tick()
    assert (done.vectors, done.refused, done.dropped) == (5, 1, 5)
    assert await harness.vectors("old") == 1


@proves("backfill.resumes")
async def test_it_continues_at_its_cursor_and_reads_nothing_twice(harness: BackfillHarness) -> None:
    await harness.talk(250)
    model = SeededEmbeddings()
    first = harness.backfill(model, backfill_every_s=0.2)
    ticks = 0
    while (await harness.vectors()) < 500:
        await first.tick()
        ticks += 1
        assert ticks < 200
    said = [text for call in model.calls for text in call]
    assert len(said) == len(set(said)) == 500
    await harness.all_due()
    again = await first.tick()
    assert (again.runs, again.words, again.vectors) == (0, 0, 0)


@proves("backfill.resumes")
async def test_a_worker_that_dies_loses_only_its_progress(harness: BackfillHarness) -> None:
    class Dies(SeededEmbeddings):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            if len(self.calls) == 2:
                raise asyncio.CancelledError
            return await super().embed(texts)

    await harness.talk(60)
    await harness.backfill(Dies()).tick()
    made = await harness.vectors()
    assert 0 < made < 120
    model = SeededEmbeddings()
    done = await harness.backfill(model).tick()
    assert made + done.vectors == await harness.vectors() == 120


@proves("backfill.resumes")
async def test_a_cursor_of_a_killed_worker_is_taken_when_its_lease_expires(harness: BackfillHarness) -> None:
    await harness.talk(1)
    async with harness.database.connection() as connection:
        await upkeep_cursors.add_tenant_cursors(connection, variant="directions")
        held = await upkeep_cursors.take_cursor(
            connection, "backfill", lease=timedelta(minutes=5), variant="directions"
        )
        assert held is not None
    assert (await harness.backfill(SeededEmbeddings()).tick()).runs == 0
    await harness.all_due()
    assert (await harness.backfill(SeededEmbeddings()).tick()).runs == 1
    async with harness.database.connection() as connection:
        moved = await upkeep_cursors.move_cursor(
            connection, held, passed_at=None, passed_id=None, behind=True, pause=timedelta()
        )
    assert not moved, "the one that lost its lease must not put the cursor back"


@proves("backfill.shared")
async def test_concurrent_workers_make_each_vector_once(harness: BackfillHarness) -> None:
    for tenant in ("ten_1", "ten_2", "ten_3"):
        await harness.talk(40, tenant)
    models = [SeededEmbeddings() for _ in range(4)]
    await asyncio.gather(*(harness.backfill(model).tick() for model in models))
    assert sum(len(call) for model in models for call in model.calls) == 240
    assert await count(harness.database, "embeddings") == 240


@proves("backfill.fair")
async def test_a_tenant_with_many_runs_does_not_block_others(harness: BackfillHarness) -> None:
    await harness.talk(250, "ten_1")
    await harness.talk(3, "ten_2")
    model = SeededEmbeddings()
    await harness.backfill(model).tick()
    order = [row["tenant_id"] for row in await harness.database.fetch("SELECT tenant_id FROM embeddings ORDER BY id")]
    assert order.index("ten_2") <= 200, "one portion of the other comes first at the most"
    assert len(order) == 506


@proves("backfill.yields")
async def test_live_work_has_priority(harness: BackfillHarness) -> None:
    await harness.talk(3)
    backfill = harness.backfill(SeededEmbeddings())
    live = await seed_run(harness.database)
    await harness.database.execute(
        "UPDATE effects SET due_at = now() - interval '5 seconds' WHERE run_id = :run_id", run_id=live.run_id
    )
    assert (await backfill.tick()).yielded
    await harness.database.execute("UPDATE effects SET status = 'done', done_at = now()")
    await harness.redis.rpush(broker_queue("interactive"), *["bell"] * 20)
    assert (await backfill.tick()).yielded
    assert await harness.vectors() == 0
    await harness.redis.delete(broker_queue("interactive"))
    done = await backfill.tick()
    assert (done.yielded, done.runs) == (False, 3)


@proves("backfill.yields")
async def test_live_work_that_comes_meanwhile_has_priority(harness: BackfillHarness) -> None:
    class Busy(SeededEmbeddings):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            await harness.redis.rpush(broker_queue("effects"), *["bell"] * 20)
            return await super().embed(texts)

    await harness.talk(60)
    model = Busy()
    done = await harness.backfill(model).tick()
    assert (done.yielded, len(model.calls), done.runs) == (True, 1, 0)
    await harness.redis.delete(broker_queue("effects"))
    rest = await harness.backfill(SeededEmbeddings()).tick()
    assert (rest.vectors, rest.runs) == (120 - 32, 60)


@proves("backfill.yields")
async def test_it_stops_when_the_worker_drains_and_releases_its_tenant(harness: BackfillHarness) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    class Slow(SeededEmbeddings):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            begun.set()
            await never.wait()
            return []

    await harness.talk(3)
    backfill = harness.backfill(Slow())
    tick = asyncio.create_task(backfill.tick())
    await asyncio.wait_for(begun.wait(), 60)
    backfill.drain()
    await asyncio.wait_for(tick, 60)
    assert (await backfill.tick()).runs == 0
    assert (await harness.backfill(SeededEmbeddings()).tick()).runs == 3, "at once, and not after the lease"


async def test_a_text_that_the_model_refuses_blocks_no_other(harness: BackfillHarness) -> None:
    await harness.talk(3)
    done = await harness.backfill(RefusesOneText()).tick()
    assert (done.vectors, done.refused, done.runs) == (5, 1, 3)


async def test_without_the_provider_words_are_indexed_and_the_cursor_stays(harness: BackfillHarness) -> None:
    await harness.talk(2)
    model = SeededEmbeddings()
    model.fails = True
    done = await harness.backfill(model).tick()
    assert (done.words, done.runs, len(model.calls)) == (4, 0, 1)
    model.fails = False
    await harness.all_due()
    assert (await harness.backfill(model).tick()).vectors == 4


async def test_with_no_provider_configured_words_are_indexed(harness: BackfillHarness) -> None:
    await harness.talk(2)
    done = await harness.backfill(None).tick()
    assert (done.words, done.vectors) == (4, 0)


async def test_failed_runs_and_deleted_threads_are_skipped(harness: BackfillHarness) -> None:
    thread, gone = await harness.thread(), await harness.thread()
    await old_run(harness.database, "never answered", thread=thread, status="failed")
    await old_run(harness.database, "forgotten", thread=gone)
    async with harness.database.transaction() as transaction:
        await delete_thread(transaction, *gone)
    done = await harness.backfill(SeededEmbeddings()).tick()
    assert (done.runs, done.words, done.vectors) == (2, 0, 0)


async def test_usage_that_belongs_to_no_run_is_passed_over(harness: BackfillHarness) -> None:
    await harness.talk(1)
    # As the usage of a judgement of models is.
    await harness.database.execute(
        "INSERT INTO usage (id, tenant_id, model_calls, created_at)"
        " VALUES ('use_0', 'ten_1', 1, now() - interval '2 days')"
    )
    done = await harness.backfill(SeededEmbeddings()).tick()
    assert done.vectors == 2
    assert await count(harness.database, "upkeep_cursors", "work = 'backfill' AND NOT behind") == 1


async def test_runs_that_have_just_ended_are_left_to_the_effect(harness: BackfillHarness) -> None:
    await old_run(harness.database, "just now", thread=await harness.thread(), days_ago=0)
    assert (await harness.backfill(SeededEmbeddings()).tick()).runs == 0


async def test_search_data_of_the_effect_is_not_made_again(harness: BackfillHarness) -> None:
    run = await old_run(harness.database, "made", thread=await harness.thread())
    model = SeededEmbeddings()
    due = DueEffect("eff_1", run.tenant_id, run.run_id, run.thread_id, "embeddings", 1)
    effect = EmbeddingEffect(harness.database, model, batch_size=32)
    await effect.prepare([due])
    await effect.handle([due])
    calls = len(model.calls)
    await harness.backfill(model).tick()
    assert len(model.calls) == calls


@pytest.mark.parametrize("off", [{"backfill": False}, {"enabled": False}])
async def test_it_can_be_turned_off(harness: BackfillHarness, off: dict[str, bool]) -> None:
    await harness.talk(1)
    assert (await harness.backfill(SeededEmbeddings(), **off).tick()).runs == 0


async def test_progress_can_be_seen(harness: BackfillHarness) -> None:
    await harness.talk(1)
    async with harness.database.connection() as connection:
        await upkeep_cursors.add_tenant_cursors(connection, variant="directions")
        assert await upkeep_cursors.tenants_behind(connection) == 1
        await harness.backfill(SeededEmbeddings()).tick()
        assert await upkeep_cursors.tenants_behind(connection) == 0
    assert harness.metrics.registry.get_sample_value("nova_backfilled_total", {"what": "vectors"}) == 2


async def test_a_portion_is_read_from_the_index_for_a_history_of_any_length(harness: BackfillHarness) -> None:
    tenant, thread = await harness.thread()
    await harness.database.execute(
        "INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, created_at)"
        " SELECT 'use_' || n, :tenant_id, 'run_' || n, 'turn_' || n, :thread_id, 'nova',"
        "        now() - interval '9 days' + n * interval '1 s' FROM generate_series(1, 50000) n",
        tenant_id=tenant,
        thread_id=thread,
    )
    await harness.database.execute("ANALYZE usage")
    middle = await harness.database.fetchrow("SELECT id, created_at FROM usage WHERE id = 'use_25000'")
    assert middle is not None
    plan = await harness.database.fetchval(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {ledger.ENDED}",
        tenant_id=tenant,
        passed_at=middle["created_at"],
        passed_id=middle["id"],
        settled=timedelta(minutes=5),
        limit=100,
    )
    assert "Seq Scan" not in [node["Node Type"] for node in _nodes(plan) if node.get("Relation Name") == "usage"]
    assert max(_rows(node) for node in _nodes(plan)) <= 110
    async with harness.database.connection() as connection:
        runs = await ledger.ended_runs(
            connection,
            tenant,
            passed_at=middle["created_at"],
            passed_id=middle["id"],
            settled=timedelta(minutes=5),
            limit=100,
        )
    assert [run.id for run in runs] == [f"use_{number}" for number in range(25001, 25101)]


def _nodes(plan: Any) -> list[dict[str, Any]]:
    """Return all nodes of a plan."""
    document = orjson.loads(plan) if isinstance(plan, str) else plan
    nodes: list[dict[str, Any]] = [document[0]["Plan"]]
    for node in nodes:
        nodes.extend(node.get("Plans", []))
    return nodes


def _rows(node: dict[str, Any]) -> int:
    """Return how many rows a node returned or removed."""
    return int(node.get("Actual Rows", 0)) + int(node.get("Rows Removed by Filter", 0))


@proves("backfill.fair")
async def test_a_run_that_cannot_be_indexed_is_skipped(harness: BackfillHarness) -> None:
    await harness.talk(3)
    await harness.talk(1, tenant_id="ten_2")
    await harness.database.execute(
        "ALTER TABLE message_texts ADD CONSTRAINT refuses_one CHECK (content <> 'question 1' OR tenant_id <> 'ten_1')"
    )
    try:
        done = await harness.backfill(SeededEmbeddings()).tick()
    finally:
        await harness.database.execute("ALTER TABLE message_texts DROP CONSTRAINT refuses_one")
    assert (done.runs, done.words) == (4, 6)
    assert (await harness.vectors(), await harness.vectors(tenant_id="ten_2")) == (4, 2)
    await harness.all_due()
    assert (await harness.backfill(SeededEmbeddings()).tick()).runs == 0


@proves("backfill.fair")
async def test_a_tenant_whose_portion_fails_blocks_no_other(harness: BackfillHarness) -> None:
    class Breaks(SeededEmbeddings):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            if any("Boom" in text for text in texts):
                raise RuntimeError("unexpected")
            return await super().embed(texts)

    await old_run(harness.database, "Boom", thread=await harness.thread("ten_1"))
    await harness.talk(2, tenant_id="ten_2")
    await harness.backfill(Breaks()).tick()
    assert (await harness.vectors(), await harness.vectors(tenant_id="ten_2")) == (0, 4)
    await harness.all_due()
    await harness.backfill(SeededEmbeddings()).tick()
    assert await harness.vectors() == 2
