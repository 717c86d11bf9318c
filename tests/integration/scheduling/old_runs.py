"""Conversations of some time ago, with what the ledger keeps of their runs."""

from datetime import timedelta
from typing import Any

from nova_workers.ids import new_id
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import SeededRun, seed_run, seed_thread

__all__ = ["add_agent", "age_thread", "count", "old_run", "old_thread"]


async def add_agent(database: Database, tenant_id: str, agent_id: str = "nova", **spec: Any) -> None:
    """Insert an agent, and its tenant."""
    await database.execute("INSERT INTO tenants (id, name) VALUES ($1, $1) ON CONFLICT DO NOTHING", tenant_id)
    given = {"name": agent_id, **spec}
    await database.execute("INSERT INTO agents (tenant_id, id, spec) VALUES ($1, $2, $3)", tenant_id, agent_id, given)


async def old_run(
    database: Database,
    question: str,
    answer: str = "Noted.",
    *,
    thread: tuple[str, str],
    days_ago: float = 1,
    status: str = "succeeded",
) -> SeededRun:
    """Insert a run that ended a while ago, with a tool call and its usage, and make it the thread's head."""
    run = await seed_run(database, [("query", question), ("response", answer)], thread=thread, effects=())
    ago = timedelta(days=days_ago)
    await database.execute(
        "UPDATE runs SET status = $2, finished_at = now() - $3::interval WHERE id = $1", run.run_id, status, ago
    )
    await database.execute(
        "INSERT INTO tool_calls (id, tenant_id, turn_id, call_id, step, sequence, tool_name, params, status)"
        " VALUES ($1, $2, $3, 'c1', 0, 0, 'Read', '{}', 'completed')",
        f"tc_{run.turn_id}",
        run.tenant_id,
        run.turn_id,
    )
    await database.execute(
        "INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, created_at)"
        " VALUES ($1, $2, $3, $4, $5, 'nova', now() - $6::interval)",
        new_id("use"),
        run.tenant_id,
        run.run_id,
        run.turn_id,
        run.thread_id,
        ago,
    )
    await database.execute(
        "UPDATE turns t SET parent_turn_id = h.head_turn_id, depth = COALESCE(p.depth + 1, 0)"
        "  FROM threads h LEFT JOIN turns p ON p.id = h.head_turn_id WHERE t.id = $1 AND h.id = $2",
        run.turn_id,
        run.thread_id,
    )
    await database.execute(
        "INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id) VALUES ($1, $2, $3, $4)",
        run.tenant_id,
        run.thread_id,
        run.turn_id,
        run.run_id,
    )
    await database.execute(
        "UPDATE threads SET head_turn_id = $2, turn_count = turn_count + 1, next_seq = next_seq + 1 WHERE id = $1",
        run.thread_id,
        run.turn_id,
    )
    return run


async def age_thread(database: Database, thread_id: str, days: float) -> None:
    """Let a thread be so old, and untouched since."""
    await database.execute(
        "UPDATE threads SET created_at = now() - $2::interval, updated_at = now() - $2::interval WHERE id = $1",
        thread_id,
        timedelta(days=days),
    )


async def old_thread(
    database: Database, turns: int = 3, *, tenant_id: str = "ten_1", agent_id: str = "nova", days: float = 100
) -> tuple[tuple[str, str], list[SeededRun]]:
    """Insert a thread with a number of turns that was unused for a time."""
    thread = await seed_thread(database, tenant_id=tenant_id, agent_id=agent_id, title="Secret plans")
    runs = [
        await old_run(database, f"question {number}", f"answer {number}", thread=thread, days_ago=days)
        for number in range(turns)
    ]
    await age_thread(database, thread[1], days)
    return thread, runs


async def count(database: Database, table: str, where: str = "true", *args: object) -> int:
    """Count rows."""
    return await database.fetchval(f"SELECT count(*)::int FROM {table} WHERE {where}", *args)
