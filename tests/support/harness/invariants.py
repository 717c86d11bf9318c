"""Invariants of the ledger: at any moment, and after all runs have ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nova_workers.contracts.content import Message
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.ledger.database import Database
from tests.support.harness.planned_engine import USAGE, PlannedEngine
from tests.support.harness.workers import ENDED

# One statement: state machines look after each of thousands of steps.
_BROKEN = """
SELECT 'a thread has another holder than the run that runs or waits' AS what, t.id
  FROM threads t LEFT JOIN runs r ON r.thread_id = t.id AND r.status IN ('running', 'waiting')
 GROUP BY t.id
HAVING t.active_run_id IS DISTINCT FROM max(r.id) OR count(r.id) > 1
UNION ALL
SELECT 'a fence beyond its thread''s', r.id FROM runs r JOIN threads t ON t.id = r.thread_id WHERE r.fence > t.fence
UNION ALL
SELECT 'two claims with one fence', thread_id FROM runs WHERE fence > 0 GROUP BY thread_id, fence HAVING count(*) > 1
"""


async def check_any_time(database: Database) -> None:
    """Check what must hold at any moment, also between two writes."""
    broken = [tuple(row) for row in await database.fetch(_BROKEN)]
    assert not broken, broken


async def thread_state(database: Database, thread_id: str) -> list[Any]:
    """Return everything that the ledger holds of a thread, to be compared."""
    return [
        [
            tuple(row)
            for row in await database.fetch(
                f"SELECT x::text FROM {table} x WHERE {column} = :thread_id ORDER BY 1", thread_id=thread_id
            )
        ]
        for table, column in (
            ("threads", "id"),
            ("runs", "thread_id"),
            ("turns", "thread_id"),
            ("messages", "thread_id"),
            ("usage", "thread_id"),
            ("thread_heads", "thread_id"),
        )
    ] + [
        [
            tuple(row)
            for row in await database.fetch(
                "SELECT c::text FROM tool_calls c JOIN turns t ON t.id = c.turn_id WHERE t.thread_id = :thread_id"
                " ORDER BY 1",
                thread_id=thread_id,
            )
        ]
    ]


async def check_settled(database: Database, engine: PlannedEngine) -> None:
    """Check the ledger when no run is open."""
    await check_any_time(database)
    runs = await database.fetch("SELECT * FROM runs ORDER BY thread_id, seq")
    still_open = [(run["id"], run["status"]) for run in runs if run["status"] not in ENDED]
    assert not still_open, f"never ended: {still_open}"
    await _check_messages_are_once(database)
    await check_heads(database)
    await _check_usage(database)
    await _check_histories(database)
    again = [key for key, times in Counter(each.call_id for each in engine.executions).items() if times > 1]
    fragile = {each.call_id for each in engine.executions if not each.tool.startswith(("again:", "ask:", "agent:"))}
    held = await database.fetch(
        "SELECT id FROM tool_calls WHERE status IN ('deferred', 'approved', 'pending', 'running')"
    )
    assert not held, f"calls that never ended: {held}"
    waits = await database.fetch("SELECT id FROM run_waits WHERE status = 'open'")
    assert not waits, f"waits of runs that are over: {waits}"
    assert not fragile.intersection(again), f"tools that ran twice: {fragile.intersection(again)}"


async def _check_messages_are_once(database: Database) -> None:
    """Every accepted message is the query of its turn or steered another; only a canceled one may be in no turn."""
    rows = await database.fetch(
        "SELECT r.id, r.status, r.merged_into,"
        "       (SELECT count(*) FROM messages m WHERE m.run_id = r.id AND m.kind = 'query') AS queries,"
        "       (SELECT array_agg(t.run_id) FROM messages m JOIN turns t ON t.id = m.turn_id"
        "         WHERE m.run_id = r.id AND m.kind = 'steering') AS steered,"
        "       (SELECT count(*) FROM usage u WHERE u.run_id = r.id) AS usages"
        "  FROM runs r"
    )
    for row in rows:
        if row["status"] == "merged":
            wanted = (0, [row["merged_into"]], 0)
        elif row["status"] == "canceled" and not row["queries"]:
            wanted = (0, None, 0)
        else:
            wanted = (1, None, 1)
        assert (row["queries"], row["steered"], row["usages"]) == wanted, dict(row)


async def check_heads(database: Database) -> None:
    """The moves of a head are its turns, each the child of the one before."""
    for thread in await database.fetch("SELECT id, head_turn_id, turn_count FROM threads"):
        moves = await database.fetch(
            "SELECT h.turn_id, t.parent_turn_id, t.depth, t.type FROM thread_heads h JOIN turns t ON t.id = h.turn_id"
            " WHERE h.thread_id = :thread_id ORDER BY h.id",
            thread_id=thread["id"],
        )
        parents = [None, *(move["turn_id"] for move in moves)]
        assert [move["parent_turn_id"] for move in moves] == parents[:-1]
        assert thread["head_turn_id"] == parents[-1]
        assert thread["turn_count"] == sum(move["type"] == "normal" for move in moves)
        assert [move["depth"] for move in moves] == list(range(len(moves)))


async def _check_usage(database: Database) -> None:
    """Each response is a step, and each complete one is counted once, in the turn and in the usage of its run."""
    for turn in await database.fetch(
        "SELECT t.*, u.input_tokens AS billed, u.cost_usd::float8 AS billed_usd FROM turns t"
        "  JOIN usage u ON u.run_id = t.run_id"
    ):
        responses = await database.fetch(
            "SELECT content FROM messages WHERE turn_id = :turn_id AND kind = 'response'", turn_id=turn["id"]
        )
        whole = sum(
            any(block["type"] == "tool_use" or "Done." in block.get("text", "") for block in response["content"])
            for response in responses
        )
        assert turn["steps"] == len(responses), dict(turn)
        assert turn["input_tokens"] == turn["billed"] == whole * USAGE.input_tokens, dict(turn)
        assert turn["billed_usd"] == whole * (USAGE.cost_usd or 0), dict(turn)


async def _check_histories(database: Database) -> None:
    """In the history that a model would get, the next message answers each tool_use, as the ledger has it."""
    async with database.connection() as connection:
        for thread in await database.fetch(
            "SELECT tenant_id, head_turn_id FROM threads WHERE head_turn_id IS NOT NULL"
        ):
            turns = await load_history_turns(connection, thread["tenant_id"], thread["head_turn_id"])
            check_history(tuple(message for turn in turns for message in turn.messages))


def check_history(history: tuple[Message, ...]) -> None:
    """Check that every tool_use has its result in the message that follows, and no result is without its tool_use."""
    pending: list[str] = []
    for message in history:
        given = [block["tool_use_id"] for block in message.content if block["type"] == "tool_result"]
        assert given == pending, f"asked {pending}, answered {given}"
        pending = [block["id"] for block in message.content if block["type"] == "tool_use"]
    assert not pending, f"never answered: {pending}"
