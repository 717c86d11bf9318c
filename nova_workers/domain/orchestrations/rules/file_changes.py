"""The files that agents of a tree changed, each with why."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from nova_workers.contracts.http.orchestrations import FileChange
from nova_workers.domain.orchestrations.rules.history import history_entries
from nova_workers.domain.orchestrations.rules.rationale import LOOK_BACK, extract_rationale
from nova_workers.domain.orchestrations.sql import file_changes as ledger
from nova_workers.ledger.database import Connection, Row

CHANGING_TOOLS: Final = ("Write", "Edit")
"""Tools that change the file in their parameter `file_path`. Which files a shell command changes is not known."""


async def list_file_changes(
    connection: Connection,
    tenant_id: str,
    orchestration_id: str,
    *,
    agent_id: str | None,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[FileChange]:
    """Return the changes of files in an orchestration, oldest first, each with its rationale.

    Args:
        connection: The ledger.
        tenant_id: Whose orchestration.
        agent_id: Only those of this agent of the orchestration.
        after: Only those after the change with this time and id.
        limit: At most so many.
    """
    rows = await ledger.list_file_changes(
        connection,
        tenant_id,
        orchestration_id,
        tools=CHANGING_TOOLS,
        agent_id=agent_id,
        # Each message has an entry, and that of the call has the call itself.
        messages=LOOK_BACK + 1,
        after=after,
        limit=limit,
    )
    return [_change(row) for row in rows]


def _change(row: Row) -> FileChange:
    entries = history_entries(row["messages"] or ())
    calls = [at for at, entry in enumerate(entries) if entry.type == "TOOL_CALL" and entry.call_id == row["call_id"]]
    found = extract_rationale(entries, calls[-1] if calls else len(entries))
    return FileChange(
        id=row["id"],
        path=row["path"],
        agent_id=row["agent_id"],
        run_id=row["run_id"],
        tool_call_id=row["call_id"],
        tool_name=row["tool_name"],
        at=row["at"],
        rationale=None if found is None else found.text,
        score=0 if found is None else found.score,
    )
