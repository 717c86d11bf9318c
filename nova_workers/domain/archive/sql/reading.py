"""Reads all rows of a tenant from one snapshot."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from nova_workers.base.errors import Conflict
from nova_workers.base.vocabulary import OPEN_RUNS, sql_list
from nova_workers.contracts.http.archive import ARCHIVE_FORMAT
from nova_workers.domain.archive.sql.tables import KeptTable, load_tables, references
from nova_workers.ledger.database import Snapshot

_ROWS_AT_ONCE = 25
"""A message may hold an image of several megabytes."""

# A row as one line of JSON. Times are in UTC, whatever the session's time zone. Names in braces come from `KeptTable`.
_ROWS: Final = """
SELECT jsonb_build_object('table', '{table}', 'agent', {agent}, 'thread', {thread}, 'ended', {ended},
                          'row', (to_jsonb(x) - :left_out::text[]){exact})::text
  FROM {table} x {join}
 WHERE x.tenant_id = :tenant_id AND {only}
 ORDER BY {order}
"""

_BEGIN = """
SELECT jsonb_build_object('table', 'archive', 'row', jsonb_build_object(
           'format', :format::int, 'next_task_id', next_task_id))::text
  FROM tenants WHERE id = :tenant_id
"""

# Names and descriptions only: the value is encrypted with a key of this fleet, and must not leave it.
_SECRETS = """
SELECT jsonb_build_object('table', 'secrets', 'row',
                          jsonb_build_object('name', name, 'description', description))::text
  FROM secrets WHERE tenant_id = :tenant_id AND :with_secrets ORDER BY name
"""

_MOVING = """
SELECT a.id FROM switches s JOIN agents a ON a.tenant_id = s.tenant_id AND a.id = s.target AND a.renamed_to IS NULL
 WHERE s.scope = 'rename' AND s.tenant_id = :tenant_id
 LIMIT 1
"""

_OPEN = f"""
SELECT count(*)::int FROM runs
 WHERE tenant_id = :tenant_id AND status IN {sql_list(OPEN_RUNS)}
"""


async def read_archive(snapshot: Snapshot, tenant_id: str, *, with_secrets: bool) -> AsyncGenerator[bytes]:
    """Yield the lines of a tenant's archive, each with its line feed. See `nova_workers.contracts.http.archive`.

    Few rows are in memory at once. Open runs and their turns are left out, since they
    still change. The last line says how many there are.

    Args:
        with_secrets: Whether to include the names of secrets.

    Raises:
        Conflict: An agent is being renamed, so rows name it by two ids.
        Unavailable: The connection to the database was lost.
    """
    moving = await snapshot.fetchval(_MOVING, tenant_id=tenant_id)
    if moving is not None:
        raise Conflict(f"Agent {moving!r} is being renamed. Export again when that is done.", agent_id=moving)
    tables = await load_tables(snapshot)
    async for line in _lines(snapshot, _BEGIN, tenant_id=tenant_id, format=ARCHIVE_FORMAT):
        yield line
    for table in tables.values():
        at_once = 1 if table.bytes else _ROWS_AT_ONCE
        async for line in _lines(
            snapshot, _query(table), at_once=at_once, tenant_id=tenant_id, left_out=list(table.left_out)
        ):
            yield line
    async for line in _lines(snapshot, _SECRETS, tenant_id=tenant_id, with_secrets=with_secrets):
        yield line
    open_runs = await snapshot.fetchval(_OPEN, tenant_id=tenant_id)
    yield b'{"table": "end", "row": {"open_runs": %d}}\n' % open_runs


async def _lines(
    snapshot: Snapshot, query: str, *, at_once: int = _ROWS_AT_ONCE, **values: object
) -> AsyncGenerator[bytes]:
    async with aclosing(snapshot.rows(query, at_once=at_once, **values)) as rows:
        async for row in rows:
            line: str = row[0]
            yield line.encode() + b"\n"


def _query(table: KeptTable) -> str:
    exact = "".join(f" || jsonb_build_object('{column}', x.{column}::text)" for column in table.exact)
    # What a reference names may be deleted, or not in an archive: the import refuses one that leads nowhere.
    exact += "".join(
        f" || jsonb_build_object('{found.column}', CASE WHEN {found.present} THEN x.{found.column} END)"
        for found in references([table])
    )
    return _ROWS.format(
        table=table.name,
        agent=table.agent,
        thread=table.thread,
        ended=table.ended,
        exact=exact,
        join=table.join,
        only=table.only,
        order=table.order,
    )
