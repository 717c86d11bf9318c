"""Reads the changes that the database records (`models/changes.py`), each once, in one order.

The order is that of transactions, then of the rows in them. A row is read once its transaction is older than all that
run: then no row can appear before it any more, however late a transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, cast

from nova_workers.base.vocabulary import ChangeSubject
from nova_workers.contracts.changes import Changed
from nova_workers.ledger.database import Connection, Row


class Position(NamedTuple):
    """A place in the order of changes: after the row `id` of the transaction `xact`."""

    xact: int
    id: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far changes can be read at a moment.

    Attributes:
        database: Of this database; another one's positions mean nothing here, such as those from before a restore.
        position: All changes before it can be read, and none after it.
        newest_xact: No transaction with this number or a higher one has begun.
        at: The moment, on the database's clock.
    """

    database: str
    position: Position
    newest_xact: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change and its place."""

    position: Position
    changed: Changed


_DATABASE = """
md5((SELECT system_identifier FROM pg_control_system()) || '/'
    || (SELECT oid FROM pg_database WHERE datname = current_database()))
"""

_HORIZON = f"""
SELECT left({_DATABASE}, 8) AS database, pg_snapshot_xmin(s.now)::text::bigint AS xact,
       pg_snapshot_xmax(s.now)::text::bigint AS newest_xact, clock_timestamp() AS at
  FROM (SELECT pg_current_snapshot()) AS s (now)
"""

# Those of the tenant and of the whole fleet, each from the index, and merged.
_OF = """
SELECT c.tenant_id, c.xact, c.id, c.subject, c.subject_id, c.change, c.agent_id, c.thread_id, c.at
  FROM ((SELECT * FROM changes
          WHERE tenant_id = {tenant} AND (xact, id) > ({xact}, {id}) AND {until}
          ORDER BY xact, id
          LIMIT :limit)
        UNION ALL
        (SELECT * FROM changes
          WHERE tenant_id = '' AND (xact, id) > ({xact}, {id}) AND {until}
          ORDER BY xact, id
          LIMIT :limit)) AS c
 ORDER BY c.xact, c.id
 LIMIT :limit
"""

_OF_FOLLOWED = _OF.format(tenant="f.tenant_id", xact="f.xact", id="f.id", until="xact < oldest.xact")

# One reader for all tenants that are followed, each from its position. A statement's snapshot is also what it sees:
# rows of transactions before its oldest one are there, or never will be. That one is returned without any change, too.
_NEW = f"""
WITH oldest AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xact)
SELECT oldest.xact AS oldest_xact, new.*
  FROM oldest
  LEFT JOIN LATERAL (
       SELECT f.place, c.*
         FROM unnest(:tenant_ids::text[], :xacts::bigint[], :ids::bigint[]) WITH ORDINALITY
              AS f (tenant_id, xact, id, place)
        CROSS JOIN LATERAL ({_OF_FOLLOWED}) AS c
  ) AS new ON true
 ORDER BY new.place, new.xact, new.id
"""

_PAGE = _OF.format(tenant=":tenant_id", xact=":xact", id=":id", until="(xact, id) <= (:to_xact, :to_id)")


async def read_horizon(connection: Connection) -> Horizon:
    """Return how far changes can be read now."""
    row = await connection.fetchrow(_HORIZON)
    assert row is not None  # noqa: S101 - it has one row
    return Horizon(row["database"], Position(row["xact"], 0), row["newest_xact"], row["at"])


async def read_changes(
    connection: Connection, tenant_id: str, *, after: Position, to: Position, limit: int
) -> Sequence[RecordedChange]:
    """Return the changes after a position, oldest first, at most `limit`.

    Args:
        to: The last position: that of a horizon, or of a change that was read, also within its transaction.
    """
    rows = await connection.fetch(
        _PAGE, tenant_id=tenant_id, xact=after.xact, id=after.id, to_xact=to.xact, to_id=to.id, limit=limit
    )
    return [_change(row) for row in rows]


async def read_new_changes(
    connection: Connection, followed: Sequence[tuple[str, Position]], *, limit: int
) -> tuple[Position, Sequence[Sequence[RecordedChange]]]:
    """Return how far could be read, and the changes of each tenant after its position, at most `limit` of each."""
    rows = await connection.fetch(
        _NEW,
        tenant_ids=[tenant_id for tenant_id, _ in followed],
        xacts=[position.xact for _, position in followed],
        ids=[position.id for _, position in followed],
        limit=limit,
    )
    found: list[list[RecordedChange]] = [[] for _ in followed]
    for row in rows:
        if row["place"] is not None:
            found[row["place"] - 1].append(_change(row))
    return Position(rows[0]["oldest_xact"], 0), found


def _change(row: Row) -> RecordedChange:
    changed = Changed(
        subject=cast(ChangeSubject, row["subject"]),
        id=row["subject_id"],
        change=row["change"],
        agent_id=row["agent_id"],
        thread_id=row["thread_id"],
        at=row["at"],
    )
    return RecordedChange(Position(row["xact"], row["id"]), changed)
