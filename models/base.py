"""Metadata of all tables: naming convention, so that every constraint has a name a migration can use."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, MetaData, event, text
from sqlmodel import SQLModel

metadata = SQLModel.metadata
metadata.naming_convention = {
    "ix": "ix_%(table_name)s__%(column_0_N_name)s",
    "uq": "uq_%(table_name)s__%(column_0_N_name)s",
    "ck": "ck_%(table_name)s__%(constraint_name)s",
    "fk": "fk_%(table_name)s__%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Table(SQLModel):
    """Base of every table. Narrows SQLModel's computed table name to the plain one that each class gives."""

    __tablename__: ClassVar[str]  # pyright: ignore[reportIncompatibleVariableOverride, reportAssignmentType] - computed


WITHOUT_STATISTICS: Final = {
    "runs": "status",
    "run_waits": "status",
    "effects": "status",
    "deliveries": "status",
    "work_orders": "state",
    "orchestration_agents": "state",
}
"""By table, the column that says whether a row is open: Postgres keeps no statistics of it.

Nearly all rows have ended. With statistics, a plan that is made in a quiet hour expects no open row, and takes a
partial index of open rows, from one end to the other, for cheaper than a look-up by key. It is kept when 100,000 rows
are open. Without statistics Postgres expects one row in 200.
"""


@event.listens_for(metadata, "after_create")
def _keep_none(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for table in tables:
        if column := WITHOUT_STATISTICS.get(table.name):
            connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN {column} SET STATISTICS 0"))
