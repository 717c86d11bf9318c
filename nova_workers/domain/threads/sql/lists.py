"""Lists of threads that are neither deleted nor ephemeral, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from nova_workers.base.vocabulary import RunSource
from nova_workers.contracts.http.wire import ThreadView
from nova_workers.domain.threads.sql.records import THREAD_COLUMNS, view_of_thread
from nova_workers.ledger.database import Connection

# One statement per set of filters, so that each is planned for the index that fits it.
_CONDITIONS: Final = {
    "agent_id": "t.agent_id = :agent_id",
    "label": "t.label = :label",
    "forked_from": "t.forked_from_thread_id = :forked_from",
    "origin": "t.origin = :origin",
    # Of one it is a condition of the index in the list's order, as it is for most.
    "created_by": "t.created_by = :created_by",
    "created_by_any": "t.created_by = ANY(:created_by_any::text[])",
}
# Spelt out: the planner uses a partial index only if it sees the value.
_MARKS: Final = {
    ("pinned", True): "t.pinned",
    ("pinned", False): "NOT t.pinned",
    ("archived", True): "t.archived",
    ("archived", False): "NOT t.archived",
}


@dataclass(frozen=True, slots=True)
class ThreadFilter:
    """Which threads; None does not filter."""

    agent_id: str | None = None
    label: str | None = None
    forked_from: str | None = None
    """Only forks of this thread."""
    origin: RunSource | None = None
    created_by: str | None = None
    """Only those that this API key created."""
    created_by_any: Sequence[str] | None = None
    """Only those that any of these API keys created."""
    pinned: bool | None = None
    archived: bool | None = None

    def given(self) -> dict[str, object]:
        """Return the filters that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


async def list_threads(
    connection: Connection, tenant_id: str, which: ThreadFilter, *, before: str | None = None, limit: int
) -> list[ThreadView]:
    """Return threads from before the thread `before` on."""
    given = which.given()
    values = {name: given[name] for name in _CONDITIONS if name in given}
    if before is not None:
        values["before"] = before
    conditions = [
        "t.tenant_id = :tenant_id AND t.deleted_at IS NULL AND t.ephemeral = false",
        *(_CONDITIONS[name] for name in values if name in _CONDITIONS),
        *(condition for mark, condition in _MARKS.items() if mark in given.items()),
        *(["t.id < :before"] if before is not None else []),
    ]
    query = f"""
SELECT {THREAD_COLUMNS} FROM threads t
 WHERE {" AND ".join(conditions)}
 ORDER BY t.id DESC
 LIMIT :limit
"""
    rows = await connection.fetch(query, tenant_id=tenant_id, limit=limit, **values)
    return [view_of_thread(row) for row in rows]
