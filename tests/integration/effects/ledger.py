"""Finished runs with effects, written straight into the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.base.ids import new_id
from nova_workers.ledger.database import Database


@dataclass(frozen=True)
class SeededRun:
    """A finished run and its rows."""

    tenant_id: str
    thread_id: str
    run_id: str
    turn_id: str
    message_ids: tuple[str, ...]


async def seed_thread(
    database: Database, *, tenant_id: str | None = None, title: str | None = None, agent_id: str = "nova"
) -> tuple[str, str]:
    """Insert a thread and return tenant and thread."""
    tenant, thread = tenant_id or new_id("ten"), new_id("thr")
    await database.execute(
        "INSERT INTO tenants (id, name) VALUES (:tenant_id, :tenant_id) ON CONFLICT DO NOTHING", tenant_id=tenant
    )
    await database.execute(
        "INSERT INTO threads (id, tenant_id, agent_id, title) VALUES (:thread_id, :tenant_id, :agent_id, :title)",
        thread_id=thread,
        tenant_id=tenant,
        title=title,
        agent_id=agent_id,
    )
    return tenant, thread


async def seed_run(
    database: Database,
    said: Sequence[tuple[str, str]] = (("query", "hello"), ("response", "hi")),
    *,
    thread: tuple[str, str] | None = None,
    effects: Sequence[str] = ("embeddings", "title"),
    agent_id: str = "nova",
    traceparent: str | None = None,
) -> SeededRun:
    """Insert a finished run with the messages (kind, text) of its turn and its effects, all due now."""
    tenant_id, thread_id = thread or await seed_thread(database)
    run_id, turn_id = new_id("run"), new_id("turn")
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content, turn_id, traceparent, finished_at)"
        " SELECT :run_id, :tenant_id, :thread_id, :agent_id, COALESCE(max(seq), 0) + 1, 'succeeded', '[]',"
        "       :turn_id, :traceparent, now()"
        "   FROM runs WHERE thread_id = :thread_id",
        run_id=run_id,
        tenant_id=tenant_id,
        thread_id=thread_id,
        agent_id=agent_id,
        turn_id=turn_id,
        traceparent=traceparent,
    )
    await database.execute(
        "INSERT INTO turns (id, tenant_id, thread_id, run_id, agent_id, status, depth)"
        " SELECT :turn_id, :tenant_id, :thread_id, :run_id, :agent_id, 'succeeded', count(*) FROM turns"
        " WHERE thread_id = :thread_id",
        turn_id=turn_id,
        tenant_id=tenant_id,
        thread_id=thread_id,
        run_id=run_id,
        agent_id=agent_id,
    )
    message_ids: list[str] = []
    for seq, (kind, text) in enumerate(said):
        message_ids.append(new_id("msg"))
        role = "assistant" if kind == "response" else "user"
        await database.execute(
            "INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)"
            " VALUES (:message_id, :tenant_id, :thread_id, :turn_id, :seq, :kind, :role, :content)",
            message_id=message_ids[-1],
            tenant_id=tenant_id,
            thread_id=thread_id,
            turn_id=turn_id,
            seq=seq,
            kind=kind,
            role=role,
            content=[{"type": "text", "text": text}, {"type": "image", "source": {"data": "AAAA"}}],
        )
    for position, kind in enumerate(effects, start=1):
        await database.execute(
            "INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position)"
            " VALUES (:effect_id, :tenant_id, :run_id, :thread_id, :kind, :position)",
            effect_id=new_id("eff"),
            tenant_id=tenant_id,
            run_id=run_id,
            thread_id=thread_id,
            kind=kind,
            position=position,
        )
    return SeededRun(tenant_id, thread_id, run_id, turn_id, tuple(message_ids))


async def effect(database: Database, run_id: str, kind: str) -> dict[str, object]:
    """Return an effect's row, with the seconds until it is due."""
    row = await database.fetchrow(
        "SELECT *, extract(epoch FROM due_at - now())::float8 AS due_in_s FROM effects"
        " WHERE run_id = :run_id AND kind = :kind",
        run_id=run_id,
        kind=kind,
    )
    assert row is not None
    return dict(row)


async def make_due(database: Database) -> None:
    """Make all waiting effects due, also those with leases."""
    await database.execute("UPDATE effects SET due_at = now() WHERE status IN ('pending', 'running')")
