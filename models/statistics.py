"""Columns of which Postgres keeps no statistics: those that say whether a row is open.

Nearly all rows have ended. With statistics, a plan that is made in a quiet hour expects no open row, and takes a
partial index of open rows, from one end to the other, for cheaper than a look-up by key. It is kept when 100,000 rows
are open. Without statistics Postgres expects one row in 200.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, MetaData, event, text

from models.base import metadata

__all__ = ["WITHOUT_STATISTICS"]

WITHOUT_STATISTICS: Final = {
    "runs": "status",
    "run_waits": "status",
    "effects": "status",
    "deliveries": "status",
    "work_orders": "state",
    "orchestration_agents": "state",
}
"""By table."""


@event.listens_for(metadata, "after_create")
def _keep_none(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for table in tables:
        if column := WITHOUT_STATISTICS.get(table.name):
            connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN {column} SET STATISTICS 0"))
