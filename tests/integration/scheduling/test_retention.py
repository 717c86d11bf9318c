"""Retention deletes old rows, and none that another row needs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import RetentionSettings
from nova_workers.base.errors import NotFound
from nova_workers.base.ids import new_id
from nova_workers.base.observability.metrics import Metrics
from nova_workers.domain.archive.sql.tables import load_tables
from nova_workers.domain.archive.sql.writing import check_references
from nova_workers.domain.search.sql.embeddings import save_texts
from nova_workers.domain.threads.rules.transcript import conversation
from nova_workers.domain.threads.sql import purge as thread_purge
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.domain.threads.sql.lineage import list_messages, list_turns
from nova_workers.domain.threads.sql.records import delete_thread, fork_thread, get_thread
from nova_workers.domain.upkeep.rules.retention import Retention
from nova_workers.domain.upkeep.sql import retention as ledger
from nova_workers.domain.upkeep.sql.overdue import delete_expired_keys
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import SeededRun, seed_thread
from tests.integration.scheduling.old_runs import add_agent, age_thread, count, old_run, old_thread
from tests.requirements import proves

NONE = {"after_days": 30, "keep": "none"}
LATEST = {"after_days": 30, "keep": "latest"}

_OF_A_THREAD = (
    *("runs", "turns", "messages", "message_texts", "thread_heads", "thread_states", "sent_files", "engine_sessions"),
)


def _retention(database: Database, **settings: Any) -> Retention:
    given = RetentionSettings.model_validate({"every_s": 60, "busy": 1, **settings})
    return Retention(database, given, Metrics(CollectorRegistry()), clock=SystemClock())


async def _again(database: Database) -> None:
    """Let the next walk over an agent's threads be due."""
    await database.execute("UPDATE upkeep_cursors SET due_at = now()")


async def _fill(database: Database, thread: tuple[str, str], runs: list[SeededRun]) -> None:
    """Add one row of each other kind to a thread."""
    async with database.connection() as connection:
        await save_texts(connection, [(run.tenant_id, run.run_id) for run in runs], max_chars=1000)
    tenant_id, thread_id = thread
    await database.execute(
        "INSERT INTO sent_files (id, tenant_id, agent_id, thread_id, run_id, name, media_type, content)"
        " VALUES (:file_id, :tenant_id, 'nova', :thread_id, :run_id, 'a', 'text/plain', 'x')",
        file_id=new_id("file"),
        tenant_id=tenant_id,
        thread_id=thread_id,
        run_id=runs[0].run_id,
    )
    await database.execute(
        "INSERT INTO engine_sessions (id, tenant_id, thread_id, engine, entries, fingerprint)"
        " VALUES (:session_id, :tenant_id, :thread_id, 'claude_agent', '[]', 'f')",
        session_id=f"ses_{thread_id}",
        tenant_id=tenant_id,
        thread_id=thread_id,
    )
    await database.execute(
        "INSERT INTO thread_states (thread_id, tenant_id, state, updated_at)"
        " VALUES (:thread_id, :tenant_id, '{}', now() - interval '40 days')",
        thread_id=thread_id,
        tenant_id=tenant_id,
    )
    await database.execute("UPDATE threads SET session_id = 'ses_1' WHERE id = :thread_id", thread_id=thread_id)
    for run in runs:
        await database.execute(
            "INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, model, dimensions, embedding)"
            " VALUES (:embedding_id, :tenant_id, 'nova', :thread_id, :message_id, 'm', 2, '[1,0]')",
            embedding_id=new_id("emb"),
            tenant_id=tenant_id,
            thread_id=thread_id,
            message_id=run.message_ids[0],
        )


async def _rows(database: Database, thread_id: str) -> dict[str, int]:
    return {
        table: await count(database, table, "thread_id = :thread_id", thread_id=thread_id) for table in _OF_A_THREAD
    }


async def _said(database: Database, tenant_id: str, thread_id: str) -> list[str]:
    """Return the messages of a thread that the model would get."""
    async with database.connection() as connection:
        thread = await get_thread(connection, tenant_id, thread_id)
        assert thread.head_turn_id is not None
        turns = await load_history_turns(connection, tenant_id, thread.head_turn_id)
    return [str(message.content[0]["text"]) for message in conversation(turns)]


async def _check_whole(database: Database) -> None:
    """Check that the remaining rows can be exported: an import refuses an incomplete history."""
    async with database.connection() as connection:
        await check_references(connection, "ten_1", (await load_tables(connection)).values())


async def _shown(database: Database, tenant_id: str, thread_id: str) -> list[str]:
    """Return the messages of a thread that people see, page by page."""
    shown: list[str] = []
    after: tuple[int, int] | None = None
    async with database.connection() as connection:
        while page := await list_messages(connection, tenant_id, thread_id, after=after, limit=2):
            shown += [str(message.content[0]["text"]) for message, _ in page]
            after = page[-1][1]
    return shown


# By age


async def _age_rows(database: Database, many: int) -> None:
    """Insert effects, deliveries, firings and work orders, half of them old."""
    (tenant_id, thread_id), runs = await old_thread(database, 1)
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content)"
        " SELECT 'run_' || n, :tenant_id, :thread_id, 'nova', 100 + n, 'succeeded', '[]'"
        "   FROM generate_series(1, :many) n",
        tenant_id=tenant_id,
        thread_id=thread_id,
        many=many,
    )
    age = "now() - CASE WHEN n % 2 = 0 THEN interval '100 days' ELSE interval '1 day' END"
    await database.execute(
        f"INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position, status, done_at)"
        f" SELECT 'eff_' || n, :tenant_id, 'run_' || n, :thread_id, 'title', 1,"
        f"        (ARRAY['done', 'failed', 'pending'])[1 + n % 3], CASE WHEN n % 3 < 2 THEN {age} END"
        f"   FROM generate_series(1, :many) n",
        tenant_id=tenant_id,
        thread_id=thread_id,
        many=many,
    )
    await database.execute(
        f"INSERT INTO deliveries (id, tenant_id, kind, target, payload, status, created_at)"
        f" SELECT 'dlv_' || n, :tenant_id, 'notification', 'whk_1', '{{}}',"
        f"        (ARRAY['delivered', 'failed', 'pending'])[1 + n % 3], {age} FROM generate_series(1, :many) n",
        tenant_id=tenant_id,
        many=many,
    )
    await database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by)"
        " VALUES ('trg_1', :tenant_id, 'nova', 'cron', '* * * * *', 'x', 'person')",
        tenant_id=tenant_id,
    )
    await database.execute(
        f"INSERT INTO trigger_firings (id, tenant_id, trigger_id, scheduled_for, fired_at, outcome)"
        f" SELECT 'fir_' || n, :tenant_id, 'trg_1', now() - n * interval '1 minute', {age}, 'fired'"
        f"   FROM generate_series(1, :many) n",
        tenant_id=tenant_id,
        many=many,
    )
    await database.execute(
        f"INSERT INTO work_orders (id, tenant_id, scope, policy_id, policy_version, schema_version, trace, fingerprint,"
        f"   customer_trail, internal_trail, state, max_rounds, max_tokens, max_cost_usd, least_output_tokens,"
        f"   ttl_hours, deadline_at, ended_at)"
        f" SELECT 'trc_' || n, :tenant_id, 's', 'p', '1', '1', '{{}}', 'f', true, true,"
        f"        (ARRAY['ended', 'ended', 'review'])[1 + n % 3], 1, 1, 1, 1, 24, now(),"
        f"        CASE WHEN n % 3 < 2 THEN {age} END"
        f"   FROM generate_series(1, :many) n",
        tenant_id=tenant_id,
        many=many,
    )
    assert runs


@proves("retention.aged")
async def test_rows_beyond_their_age_are_deleted_and_others_kept(database: Database) -> None:
    await _age_rows(database, 6000)
    done = await _retention(database).tick()
    assert done == {"effects": 2000, "deliveries": 2000, "firings": 3000, "work_orders": 2000}
    assert await count(database, "effects") == 4000
    assert await count(database, "effects", "status = 'pending'") == 2000
    assert await count(database, "deliveries", "status = 'pending'") == 2000
    assert await count(database, "trigger_firings") == 3000
    assert await count(database, "work_orders") == 4000
    assert await count(database, "work_orders", "state = 'review'") == 2000
    assert await _retention(database).tick() == {}


@proves("retention.aged")
async def test_the_inbox_is_kept_by_default(database: Database) -> None:
    await _age_rows(database, 60)
    await database.execute("UPDATE deliveries SET target = 'user', status = 'pending', routed = id <> 'dlv_2'")
    assert "deliveries" not in await _retention(database).tick()
    assert (await _retention(database, inbox_days=30).tick())["deliveries"] == 29
    assert await count(database, "deliveries", "id = 'dlv_2'") == 1, "its channels have not got it yet"


@proves("retention.aged")
async def test_a_work_order_goes_with_its_parts_and_trail_once_no_equal_order_may_get_its_result(
    database: Database,
) -> None:
    await _age_rows(database, 6)
    for table in ("parts (kind, role, round, position, reserved_usd, used_usd, run_id,", "trail (audience, event,"):
        values = "'craft', 'c', 1, 0, 0, 0, id," if "parts" in table else "'internal', 'ended',"
        await database.execute(
            f"INSERT INTO work_order_{table} id, tenant_id, order_id)"
            f" SELECT {values} 'x' || id, tenant_id, id FROM work_orders"
        )
    await database.execute(
        "INSERT INTO work_order_keys (tenant_id, key_hash, policy_version, schema_version, order_id, expires_at)"
        " VALUES ('ten_1', 'a', '1', '1', 'trc_4', now() + interval '1 day'),"
        "        ('ten_1', 'b', '1', '1', 'trc_6', now() - interval '1 day')"
    )
    assert (await _retention(database).tick())["work_orders"] == 1
    assert await count(database, "work_orders", "id = 'trc_6'") == 0
    for table in ("work_orders", "work_order_parts", "work_order_trail"):
        assert await count(database, table) == 5
    assert await count(database, "work_order_keys") == 1


@proves("retention.aged")
async def test_zero_days_keep_rows_for_ever(database: Database) -> None:
    await _age_rows(database, 60)
    kept = dict.fromkeys(RetentionSettings.model_fields.keys() - {"every_s", "busy"}, 0)
    assert await _retention(database, **kept).tick() == {}


@proves("retention.aged")
@pytest.mark.parametrize("what", list(ledger.AGED))
async def test_a_batch_is_bounded_and_read_from_an_index(database: Database, what: ledger.Aged) -> None:
    await _age_rows(database, 6000)
    for table in ("effects", "deliveries", "trigger_firings", "work_orders"):
        await database.execute(f"ANALYZE {table}")
    if what == "inbox":
        await database.execute("UPDATE deliveries SET target = 'user', routed = true")
    async with database.transaction() as connection:
        # A table that is empty by its statistics is read whole where it may be; that an index exists is the question.
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {ledger.AGED[what]}", days=30, limit=100))
    assert "Seq Scan" not in plan, plan
    async with database.connection() as connection:
        assert await ledger.delete_aged(connection, what, days=30, limit=100) == 100


@proves("retention.shared")
async def test_concurrent_workers_delete_due_rows_once(database: Database) -> None:
    await _age_rows(database, 6000)
    await add_agent(database, "ten_1", retention=NONE)
    for _ in range(10):
        await old_thread(database, 2)
    done = await asyncio.gather(*(_retention(database).tick() for _ in range(4)))
    total = {what: sum(part.get(what, 0) for part in done) for what in ("effects", "deliveries", "firings", "threads")}
    # The thread of `_age_rows` is old too, and takes its effects with it.
    assert total["deliveries"] == 2000
    assert total["firings"] == 3000
    assert total["threads"] == 11
    assert await count(database, "threads") == 0


# Whole threads


@proves("retention.whole")
async def test_a_thread_unused_for_the_retention_period_is_deleted_except_its_usage(database: Database) -> None:
    await add_agent(database, "ten_1", retention=NONE)
    old, runs = await old_thread(database, 3, days=31)
    await _fill(database, old, runs)
    young, _ = await old_thread(database, 3, days=29)
    done = await _retention(database).tick()
    assert done == {"threads": 1, "turns": 3}
    assert set((await _rows(database, old[1])).values()) == {0}
    for table in ("tool_calls", "embeddings"):
        assert await count(database, table, "tenant_id = 'ten_1'") == (3 if table == "tool_calls" else 0)
    assert await count(database, "usage", "thread_id = :thread_id", thread_id=old[1]) == 3
    async with database.connection() as connection:
        with pytest.raises(NotFound):
            await get_thread(connection, *old)
    assert await _said(database, *young) == [f"{word} {n}" for n in range(3) for word in ("question", "answer")]


async def test_a_thread_whose_state_document_changed_in_the_period_is_not_touched(database: Database) -> None:
    await add_agent(database, "ten_1", retention=NONE)
    [(changed, _), (unused, _)] = [await old_thread(database, 1) for _ in range(2)]
    for thread, days in ((changed, 29), (unused, 31)):
        await database.execute(
            "INSERT INTO thread_states (thread_id, tenant_id, state, updated_at)"
            " VALUES (:thread_id, 'ten_1', '{}', now() - make_interval(days => :days))",
            thread_id=thread[1],
            days=days,
        )
    await _retention(database).tick()
    assert await database.fetchval("SELECT array_agg(id) FROM threads") == [changed[1]]


@proves("retention.whole")
async def test_a_deleted_thread_is_purged_after_its_time(database: Database) -> None:
    gone, runs = await old_thread(database, 2)
    late, _ = await old_thread(database, 2)
    await _fill(database, gone, runs)
    for thread in (gone, late):
        async with database.transaction() as transaction:
            await delete_thread(transaction, *thread)
    await database.execute(
        "UPDATE threads SET deleted_at = now() - interval '31 days' WHERE id = :thread_id", thread_id=gone[1]
    )
    assert await _retention(database).tick() == {"threads": 1, "turns": 2}
    assert set((await _rows(database, gone[1])).values()) == {0}
    assert (await _rows(database, late[1]))["turns"] == 2


@proves("retention.needed")
@pytest.mark.parametrize("status", ["queued", "running", "waiting"])
@pytest.mark.parametrize("policy", [NONE, LATEST])
async def test_a_thread_with_an_open_run_is_not_touched(
    database: Database, policy: dict[str, Any], status: str
) -> None:
    await add_agent(database, "ten_1", retention=policy)
    thread, _ = await old_thread(database, 3)
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content, lease_expires_at)"
        " VALUES ('run_open', :tenant_id, :thread_id, 'nova', 50, :status, '[]',"
        " CASE WHEN :status = 'running' THEN now() END)",
        tenant_id=thread[0],
        thread_id=thread[1],
        status=status,
    )
    assert await _retention(database).tick() == {}
    assert await count(database, "threads", "deleted_at IS NULL AND trimmed_at IS NULL") == 1
    # Nor where the run came after the walk had looked.
    async with database.transaction() as transaction:
        assert await thread_purge.trim(transaction, *thread, days=30) == thread_purge.Slice()
    await database.execute(
        "UPDATE threads SET deleted_at = now(), purge_at = now() WHERE id = :thread_id", thread_id=thread[1]
    )
    async with database.transaction() as transaction:
        await thread_purge.purge_next(transaction)
    assert (await _rows(database, thread[1]))["turns"] == 3


@proves("retention.needed")
@pytest.mark.parametrize("policy", [NONE, LATEST])
async def test_a_thread_of_an_open_task_or_of_a_trigger_is_not_touched(
    database: Database, policy: dict[str, Any]
) -> None:
    await add_agent(database, "ten_1", retention=policy)
    of_task, _ = await old_thread(database, 2)
    of_trigger, _ = await old_thread(database, 2)
    await database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status, thread_id)"
        " VALUES ('ten_1', 1, 't', 'nova', 'person', 'active', :thread_id)",
        thread_id=of_task[1],
    )
    await database.execute("UPDATE threads SET task_id = 1 WHERE id = :thread_id", thread_id=of_task[1])
    await database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by, thread_id)"
        " VALUES ('trg_1', 'ten_1', 'nova', 'cron', '* * * * *', 'x', 'person', :thread_id)",
        thread_id=of_trigger[1],
    )
    assert await _retention(database).tick() == {}
    await database.execute("UPDATE tasks SET status = 'done', ended_at = now()")
    await database.execute("UPDATE triggers SET deleted_at = now()")
    await _again(database)
    assert (await _retention(database).tick())["turns"] >= 2
    if policy is NONE:
        assert await count(database, "tasks", "thread_id IS NOT NULL") == 0


@proves("threads.ephemeral")
async def test_an_ephemeral_thread_is_purged_a_day_after_its_last_use(database: Database) -> None:
    await add_agent(database, "ten_1")
    (unused, runs), (used, _), (kept, _), (removed, _), (busy, _), (triggered, _), (stated, _) = [
        await old_thread(database, 2) for _ in range(7)
    ]
    await database.execute("UPDATE threads SET ephemeral = id <> :kept", kept=kept[1])
    await _fill(database, unused, runs)
    await database.execute("UPDATE thread_states SET updated_at = now() - interval '2 days'")
    # Its document was changed within the day.
    await database.execute(
        "INSERT INTO thread_states (thread_id, tenant_id, state) VALUES (:thread_id, 'ten_1', '{}')",
        thread_id=stated[1],
    )
    await database.execute("UPDATE threads SET updated_at = now() - interval '23 hours' WHERE id = :id", id=used[1])
    async with database.transaction() as transaction:
        await delete_thread(transaction, *removed)
    await age_thread(database, removed[1], 2)
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content)"
        " VALUES ('run_open', 'ten_1', :thread_id, 'nova', 50, 'waiting', '[]')",
        thread_id=busy[1],
    )
    await database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by, thread_id)"
        " VALUES ('trg_1', 'ten_1', 'nova', 'cron', '* * * * *', 'x', 'person', :thread_id)",
        thread_id=triggered[1],
    )
    usage = await count(database, "usage")
    # Whatever the operator keeps of others.
    done = await _retention(database, deleted_threads_days=0).tick()
    assert (done["threads"], done["turns"]) == (2, 4)
    assert set((await _rows(database, unused[1])).values()) == {0}
    left = await database.fetchval("SELECT array_agg(id ORDER BY id) FROM threads WHERE deleted_at IS NULL")
    assert left == sorted(thread[1] for thread in (used, kept, busy, triggered, stated))
    assert await count(database, "usage") == usage, "it is the accounting"
    assert await count(database, "thread_states") == 1
    await database.execute("UPDATE runs SET status = 'canceled', finished_at = now() WHERE id = 'run_open'")
    assert (await _retention(database).tick())["threads"] == 1
    assert await count(database, "threads", "id = :id", id=busy[1]) == 0


@proves("retention.tenants")
async def test_a_policy_applies_to_one_agent_of_one_tenant(database: Database) -> None:
    await add_agent(database, "ten_1", retention=NONE)
    await add_agent(database, "ten_1", "other")
    await add_agent(database, "ten_2", retention=None)
    mine, _ = await old_thread(database, 1)
    others = [
        (await old_thread(database, 1, agent_id="other"))[0],
        (await old_thread(database, 1, tenant_id="ten_2"))[0],
    ]
    assert (await _retention(database).tick())["threads"] == 1
    assert await count(database, "threads", "id = :id", id=mine[1]) == 0
    for thread in others:
        assert (await _rows(database, thread[1]))["turns"] == 1


async def test_a_removed_policy_no_longer_applies(database: Database) -> None:
    await add_agent(database, "ten_1", retention=NONE)
    await _retention(database).tick()
    assert await count(database, "upkeep_cursors", "work = 'threads'") == 1
    await database.execute("UPDATE agents SET spec = spec - 'retention'")
    await old_thread(database, 1)
    await _again(database)
    assert await _retention(database).tick() == {}
    assert await count(database, "upkeep_cursors", "work = 'threads'") == 0


# Down to the latest turn


@proves("retention.latest")
async def test_a_thread_is_trimmed_to_its_latest_turn_and_continues_from_it(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    thread, runs = await old_thread(database, 5)
    await _fill(database, thread, runs)
    assert await _retention(database).tick() == {"turns": 4}
    assert await _said(database, *thread) == ["question 4", "answer 4"]
    assert await _shown(database, *thread) == ["question 4", "answer 4"]
    rows = await _rows(database, thread[1])
    assert rows == {
        "runs": 1,
        "turns": 1,
        "messages": 2,
        "message_texts": 2,
        "thread_heads": 1,
        "thread_states": 1,
        "sent_files": 1,
        "engine_sessions": 0,
    }
    assert await count(database, "embeddings") == 1
    assert await count(database, "tool_calls") == 1
    assert await count(database, "usage") == 5
    assert await count(database, "threads", "session_id IS NULL AND trimmed_at IS NOT NULL") == 1
    await old_run(database, "and now?", "still here", thread=thread)
    assert await _said(database, *thread) == ["question 4", "answer 4", "and now?", "still here"]
    async with database.connection() as connection:
        assert [turn.depth for turn in await list_turns(connection, *thread, below_depth=None, limit=10)] == [5, 4]


@proves("retention.latest")
async def test_a_trimmed_thread_is_not_touched_until_it_is_used_again(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    thread, _ = await old_thread(database, 2)
    await _retention(database).tick()
    cut_at = await database.fetchval("SELECT trimmed_at FROM threads")
    await _again(database)
    await _retention(database).tick()
    assert await database.fetchval("SELECT trimmed_at FROM threads") == cut_at
    await old_run(database, "more", thread=thread)
    await database.execute("UPDATE threads SET trimmed_at = now() - interval '90 days'")
    await age_thread(database, thread[1], 40)
    await _again(database)
    assert await _retention(database).tick() == {"turns": 1}


@proves("retention.latest")
async def test_a_compacted_thread_is_trimmed_behind_its_summary(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    thread, runs = await old_thread(database, 3)
    await database.execute(
        "UPDATE turns SET type = 'compaction', run_id = NULL WHERE id = :turn_id", turn_id=runs[2].turn_id
    )
    await database.execute("DELETE FROM messages WHERE turn_id = :turn_id AND seq = 1", turn_id=runs[2].turn_id)
    await database.execute(
        "INSERT INTO compactions (turn_id, tenant_id, summary, summarized_through_turn_id, first_kept_turn_id,"
        " turns_summarized, model, provider, trigger) VALUES (:turn_id, 'ten_1', 's', :summarized_through_turn_id,"
        " :first_kept_turn_id, 1, 'm', 'p', 'context_limit')",
        turn_id=runs[2].turn_id,
        summarized_through_turn_id=runs[0].turn_id,
        first_kept_turn_id=runs[1].turn_id,
    )
    await _retention(database).tick()
    assert await _said(database, *thread) == ["question 2"]


# Forks


@proves("retention.forks")
async def test_turns_that_a_fork_continues_from_are_kept_as_long_as_the_fork(database: Database) -> None:
    await add_agent(database, "ten_1", retention=NONE)
    trunk, runs = await old_thread(database, 5)
    await _fill(database, trunk, runs)
    async with database.connection() as connection:
        fork = await fork_thread(connection, *trunk, turn_id=runs[2].turn_id)
        twig = await fork_thread(connection, "ten_1", fork.id, turn_id=runs[1].turn_id)
    await old_run(database, "of the fork", thread=("ten_1", fork.id))
    told = [f"{word} {n}" for n in range(3) for word in ("question", "answer")] + ["of the fork", "Noted."]
    await _retention(database).tick()
    await _check_whole(database)
    assert await _said(database, "ten_1", fork.id) == told
    assert await _shown(database, "ten_1", fork.id) == told
    kept = await _rows(database, trunk[1])
    assert (kept["turns"], kept["runs"], kept["message_texts"], kept["sent_files"]) == (3, 3, 0, 0)
    assert kept["thread_states"] == 0
    assert await count(database, "threads", "id = :id AND title IS NULL AND deleted_at IS NOT NULL", id=trunk[1]) == 1
    # The deeper fork is deleted with what only it needed. Then the other one, and nothing is left.
    await age_thread(database, fork.id, 40)
    await _again(database)
    await _retention(database).tick()
    assert (await _rows(database, trunk[1]))["turns"] == 2
    assert await _said(database, "ten_1", twig.id) == told[:4]
    await age_thread(database, twig.id, 40)
    await _again(database)
    await _retention(database).tick()
    assert await count(database, "threads") == await count(database, "turns") == await count(database, "runs") == 0
    assert await count(database, "usage") == 6


@proves("retention.forks")
async def test_a_trimmed_thread_keeps_the_turns_of_its_forks(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    trunk, runs = await old_thread(database, 6)
    async with database.connection() as connection:
        fork = await fork_thread(connection, *trunk, turn_id=runs[1].turn_id)
        tip = await fork_thread(connection, *(await old_thread(database, 3))[0])
    await _retention(database).tick()
    assert await _said(database, *trunk) == ["question 5", "answer 5"]
    assert await _said(database, "ten_1", fork.id) == ["question 0", "answer 0", "question 1", "answer 1"]
    assert len(await _said(database, "ten_1", tip.id)) == 6
    await _check_whole(database)


@proves("retention.forks")
async def test_a_fork_that_is_trimmed_frees_the_thread_that_it_came_from(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    trunk, _ = await old_thread(database, 3)
    async with database.connection() as connection:
        fork = await fork_thread(connection, *trunk)
    await old_run(database, "of the fork", thread=("ten_1", fork.id))
    await database.execute(
        "UPDATE threads SET deleted_at = now(), purge_at = now() WHERE id = :thread_id", thread_id=trunk[1]
    )
    await _retention(database).tick()
    assert (await _rows(database, trunk[1]))["turns"] == 3
    await age_thread(database, fork.id, 40)
    await _again(database)
    await _retention(database).tick()
    assert await _said(database, "ten_1", fork.id) == ["of the fork", "Noted."]
    assert await _shown(database, "ten_1", fork.id) == ["of the fork", "Noted."]
    assert await count(database, "threads", "id = :id", id=trunk[1]) == 0


@proves("retention.forks")
async def test_a_fork_that_is_being_created_is_waited_for(database: Database) -> None:
    trunk, _ = await old_thread(database, 3)
    async with database.transaction() as forking:
        fork = await fork_thread(forking, *trunk)
        await database.execute(
            "UPDATE threads SET purge_at = now(), deleted_at = now() WHERE id = :thread_id", thread_id=trunk[1]
        )
        async with database.transaction() as transaction:
            assert await thread_purge.purge_next(transaction) == thread_purge.Slice(), "the trunk is held"
    assert (await _retention(database).tick()).get("turns", 0) == 0
    assert len(await _said(database, "ten_1", fork.id)) == 6


# In slices


@proves("retention.resumes")
async def test_a_long_thread_is_deleted_in_slices_and_a_crash_leaves_a_whole_history(database: Database) -> None:
    await add_agent(database, "ten_1", retention=LATEST)
    thread, runs = await old_thread(database, 2)
    await _lengthen(database, thread, runs, to=250)
    async with database.transaction() as transaction:
        first = await thread_purge.trim(transaction, *thread, days=30)
    assert first == thread_purge.Slice(turns=100, more=True)
    await _check_whole(database)
    assert len(await _said(database, *thread)) == 2 * 150
    async with database.transaction() as transaction:
        # The one that dies: its transaction is rolled back.
        await transaction.execute("SAVEPOINT dies")
        await thread_purge.trim(transaction, *thread, days=30)
        await transaction.execute("ROLLBACK TO dies")
    assert len(await _shown(database, *thread)) == 2 * 150
    assert await _retention(database).tick() == {"turns": 149}
    assert len(await _said(database, *thread)) == 2


@proves("retention.resumes")
async def test_a_long_thread_is_deleted_in_slices(database: Database) -> None:
    thread, runs = await old_thread(database, 2)
    await _lengthen(database, thread, runs, to=250)
    await database.execute(
        "UPDATE threads SET deleted_at = now() - interval '40 days' WHERE id = :thread_id", thread_id=thread[1]
    )
    async with database.connection() as connection:
        assert await thread_purge.mark_deleted(connection, days=30, limit=10) == 1
    slices: list[int] = []
    while await count(database, "threads"):
        async with database.transaction() as transaction:
            slices.append((await thread_purge.purge_next(transaction)).turns)
        await _check_whole(database)
    assert slices == [100, 100, 50]
    assert await count(database, "messages") == await count(database, "runs") == 0


async def _lengthen(database: Database, thread: tuple[str, str], runs: list[SeededRun], *, to: int) -> None:
    """Insert turns between the first and the second of a thread, up to a number."""
    first, last = runs
    await database.execute("UPDATE turns SET depth = :depth WHERE id = :turn_id", turn_id=last.turn_id, depth=to - 1)
    for statement in (
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content, turn_id)"
        " SELECT 'run_' || n, :tenant_id, :thread_id, 'nova', 10 + n, 'succeeded', '[]', 'turn_' || n"
        "   FROM generate_series(1, :many) n",
        "INSERT INTO turns (id, tenant_id, thread_id, run_id, agent_id, status, depth, parent_turn_id)"
        " SELECT 'turn_' || n, :tenant_id, :thread_id, 'run_' || n, 'nova', 'succeeded', n, 'turn_' || n - 1"
        "   FROM generate_series(1, :many) n",
        "INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)"
        " SELECT 'msg_' || n || '_' || s, :tenant_id, :thread_id, 'turn_' || n, s, (ARRAY['query', 'response'])[s + 1],"
        '        (ARRAY[\'user\', \'assistant\'])[s + 1], \'[{"type": "text", "text": "middle"}]\''
        "   FROM generate_series(1, :many) n, generate_series(0, 1) s",
    ):
        await database.execute(statement, tenant_id=thread[0], thread_id=thread[1], many=to - 2)
    await database.execute(
        "UPDATE turns SET parent_turn_id = :parent_turn_id WHERE id = 'turn_1'", parent_turn_id=first.turn_id
    )
    await database.execute(
        "UPDATE turns SET parent_turn_id = :parent_turn_id WHERE id = :turn_id",
        parent_turn_id=f"turn_{to - 2}",
        turn_id=last.turn_id,
    )


async def test_it_stops_when_the_worker_drains(database: Database) -> None:
    await _age_rows(database, 60)
    retention = _retention(database)
    retention.drain()
    assert await retention.tick() == {}


async def test_a_key_that_is_being_reused_is_not_deleted(database: Database) -> None:
    tenant, _ = await seed_thread(database)
    for key in ("taken", "left"):
        await database.execute(
            "INSERT INTO idempotency_keys (tenant_id, key, run_id, body_hash, expires_at)"
            " VALUES (:tenant_id, :key, 'run_1', '', now() - interval '1 day')",
            tenant_id=tenant,
            key=key,
        )
    async with database.transaction() as taking:
        await taking.execute(
            "UPDATE idempotency_keys SET expires_at = now() + :one_day WHERE key = 'taken'", one_day=timedelta(days=1)
        )
        async with database.connection() as connection:
            assert await delete_expired_keys(connection, limit=10) == 1
    assert await database.fetchval("SELECT key FROM idempotency_keys") == "taken"
