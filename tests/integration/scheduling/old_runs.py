"""Old conversations with the rows of their runs."""

from datetime import timedelta
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import SeededRun, seed_run, seed_thread


async def add_agent(database: Database, tenant_id: str, agent_id: str = "nova", **spec: Any) -> None:
    """Insert an agent, and its tenant."""
    await database.execute(
        "INSERT INTO tenants (id, name) VALUES (:tenant_id, :tenant_id) ON CONFLICT DO NOTHING", tenant_id=tenant_id
    )
    given = {"name": agent_id, **spec}
    await database.execute(
        "INSERT INTO agents (tenant_id, id, spec) VALUES (:tenant_id, :agent_id, :spec)",
        tenant_id=tenant_id,
        agent_id=agent_id,
        spec=given,
    )


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
        "UPDATE runs SET status = :status, finished_at = now() - :ago::interval WHERE id = :run_id",
        run_id=run.run_id,
        status=status,
        ago=ago,
    )
    await database.execute(
        "INSERT INTO tool_calls (id, tenant_id, turn_id, call_id, step, sequence, tool_name, params, status)"
        " VALUES (:call_id, :tenant_id, :turn_id, 'c1', 0, 0, 'Read', '{}', 'completed')",
        call_id=f"tc_{run.turn_id}",
        tenant_id=run.tenant_id,
        turn_id=run.turn_id,
    )
    await database.execute(
        "INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, created_at)"
        " VALUES (:usage_id, :tenant_id, :run_id, :turn_id, :thread_id, 'nova', now() - :ago::interval)",
        usage_id=new_id("use"),
        tenant_id=run.tenant_id,
        run_id=run.run_id,
        turn_id=run.turn_id,
        thread_id=run.thread_id,
        ago=ago,
    )
    await database.execute(
        "UPDATE turns t SET parent_turn_id = h.head_turn_id, depth = COALESCE(p.depth + 1, 0)"
        "  FROM threads h LEFT JOIN turns p ON p.id = h.head_turn_id WHERE t.id = :turn_id AND h.id = :thread_id",
        turn_id=run.turn_id,
        thread_id=run.thread_id,
    )
    await database.execute(
        "INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id)"
        " VALUES (:tenant_id, :thread_id, :turn_id, :run_id)",
        tenant_id=run.tenant_id,
        thread_id=run.thread_id,
        turn_id=run.turn_id,
        run_id=run.run_id,
    )
    await database.execute(
        "UPDATE threads SET head_turn_id = :head_turn_id, turn_count = turn_count + 1, next_seq = next_seq + 1"
        " WHERE id = :thread_id",
        thread_id=run.thread_id,
        head_turn_id=run.turn_id,
    )
    return run


async def age_thread(database: Database, thread_id: str, days: float) -> None:
    """Make a thread this old, and unused since."""
    await database.execute(
        "UPDATE threads SET created_at = now() - :ago::interval, updated_at = now() - :ago::interval"
        " WHERE id = :thread_id",
        thread_id=thread_id,
        ago=timedelta(days=days),
    )
    await database.execute(
        "UPDATE thread_states SET updated_at = now() - :ago::interval WHERE thread_id = :thread_id",
        thread_id=thread_id,
        ago=timedelta(days=days),
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


async def count(database: Database, table: str, where: str = "true", **values: object) -> int:
    """Count rows."""
    return await database.fetchval(f"SELECT count(*)::int FROM {table} WHERE {where}", **values)
