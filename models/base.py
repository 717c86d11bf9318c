"""Metadata of all tables: naming convention, so that every constraint has a name a migration can use."""

from typing import ClassVar

from sqlmodel import SQLModel

__all__ = ["Table", "metadata"]

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
