"""The second tenant: trees, work orders, approvals, the console and poison runs, each with its promised end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Guest, History

_TREES = """
SELECT o.id, a.state AS status, a.summary AS text,
       (SELECT array_agg(DISTINCT g.state) FROM orchestration_agents g WHERE g.orchestration_id = o.id) AS states
  FROM orchestrations o JOIN orchestration_agents a ON a.id = o.master_id WHERE o.tenant_id = $1
"""
_ORDERS = """
SELECT id, state AS status, stop_reason AS error, outcome::text AS text FROM work_orders WHERE tenant_id = $1
"""
_RUNS = """
SELECT id, thread_id, status, result_text AS text, error_kind || ': ' || error_message AS error
  FROM runs WHERE tenant_id = $1
"""
_REPEATED = """
SELECT c.turn_id FROM tool_calls c
 WHERE c.tenant_id = $1 AND c.tool_name = 'work' AND c.status = 'completed' GROUP BY 1 HAVING count(*) > 1
"""
_CALLS = """
SELECT params->>'key' AS id, status, left(result::text, 300) AS result
  FROM tool_calls
 WHERE tenant_id = $1 AND params->>'key' IS NOT NULL
"""
_OPEN_WAITS = "SELECT id, kind FROM run_waits WHERE tenant_id = $1 AND status = 'open'"


@dataclass(frozen=True)
class GuestRows:
    """Rows of the second tenant, by id."""

    trees: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    calls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Calls that a person decided, by their keys."""
    repeated: tuple[str, ...] = ()
    """Turns in which a script's only call was completed twice."""
    open_waits: tuple[str, ...] = ()


async def load_guests(database_url: str, tenant_id: str) -> GuestRows:
    """Read the rows of the second tenant."""
    connection = await asyncpg.connect(database_url)
    try:

        async def by_id(statement: str) -> dict[str, Mapping[str, Any]]:
            return {row["id"]: dict(row) for row in await connection.fetch(statement, tenant_id)}

        return GuestRows(
            trees=await by_id(_TREES),
            orders=await by_id(_ORDERS),
            runs=await by_id(_RUNS),
            calls=await by_id(_CALLS),
            repeated=tuple(row["turn_id"] for row in await connection.fetch(_REPEATED, tenant_id)),
            open_waits=tuple(str(dict(row)) for row in await connection.fetch(_OPEN_WAITS, tenant_id)),
        )
    finally:
        await connection.close()


def check(history: History, rows: GuestRows) -> Iterator[Violation]:
    """Compare what was accepted with its rows."""
    executed = Counter(tool.key for tool in history.guest_tools)
    for guest in history.guests:
        match guest.kind:
            case "tree":
                yield from _tree(guest, rows.trees.get(guest.id))
            case "order":
                yield from _order(history, guest, rows.orders.get(guest.id))
            case "poison":
                yield from _poison(guest, rows.runs.get(guest.id))
            case "approval":
                yield from _run(guest, rows.runs.get(guest.id))
                yield from _decided(guest, rows.calls.get(guest.key), executed[guest.key])
            case _:
                yield from _visit(guest, rows)
    for turn_id in rows.repeated:
        yield Violation("I6", f"a call of the turn {turn_id} of a tree was completed twice")
    if rows.open_waits:
        yield Violation("I4", f"{len(rows.open_waits)} waits of the second tenant are open", rows.open_waits)


def _tree(guest: Guest, row: Mapping[str, Any] | None) -> Iterator[Violation]:
    if row is None:
        yield Violation("I1", f"the acknowledged tree {guest.id} is not in the ledger", (str(guest),))
    elif row["states"] != ["COMPLETED"] or row["text"] != guest.text:
        yield Violation("I1", f"the tree {guest.id} ended otherwise than its script", (str(guest), str(row)))


def _order(history: History, guest: Guest, row: Mapping[str, Any] | None) -> Iterator[Violation]:
    if row is None:
        yield Violation("I1", f"the acknowledged order {guest.id} is not in the ledger", (str(guest),))
    elif row["status"] != "ended":
        yield Violation("I4", f"the order {guest.id} is {row['status']} at the end", (str(guest), str(row)))
    elif guest.text not in (row["text"] or "") and not history.is_outside_at_fault(guest.at):
        yield Violation("I1", f"the order {guest.id} has no result, and no model was away", (str(guest), str(row)))


def _run(guest: Guest, row: Mapping[str, Any] | None) -> Iterator[Violation]:
    if row is None:
        yield Violation("I1", f"the acknowledged run {guest.id} is not in the ledger", (str(guest),))
    elif row["status"] != "succeeded" or row["text"] != guest.text:
        yield Violation("I1", f"the run {guest.id} ended otherwise than its script", (str(guest), str(row)))


def _decided(guest: Guest, call: Mapping[str, Any] | None, times: int) -> Iterator[Violation]:
    """A permitted call is executed once. A fault of the tool or a lost worker may end it before it was."""
    status = None if call is None else call["status"]
    most = 1 if guest.key.startswith("yes") else 0
    least = 1 if status == "completed" else 0
    if not least <= times <= most:
        what = f"a call with the decision {guest.key} is {status} and was executed {times} times"
        yield Violation("I6", what, (str(guest), str(call)))


def _poison(guest: Guest, row: Mapping[str, Any] | None) -> Iterator[Violation]:
    if row is None:
        yield Violation("I1", f"the acknowledged run {guest.id} is not in the ledger", (str(guest),))
    elif row["status"] != "failed" or not (row["error"] or "").startswith("worker_lost"):
        yield Violation("I1", f"{guest.id} ends its process, and is {row['status']}", (str(guest), str(row)))


def _visit(guest: Guest, rows: GuestRows) -> Iterator[Violation]:
    runs = [row for row in rows.runs.values() if row["thread_id"] == guest.id]
    if [(row["status"], row["text"]) for row in runs] != [("succeeded", guest.text)]:
        yield Violation("I1", "a message of the console has other runs than one", (str(guest), *map(str, runs)))
