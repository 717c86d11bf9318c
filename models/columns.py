"""Column kinds that all tables share: how ids, times and JSON are stored."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    Numeric,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field

from nova_workers.base.vocabulary import sql_list, words_of

Id = Text(collation="C")
"""Prefixed ULIDs compare as bytes: byte order is creation order, and needs no locale."""


def _default(value: str | None) -> Any:
    return None if value is None else text(value)


def pk() -> Any:
    """Primary key: a prefixed ULID made by the application."""
    return Field(sa_column=Column(Id, primary_key=True))


def id_ref(*, null: bool = False, comment: str | None = None, primary: bool = False) -> Any:
    """Make an id without a foreign key: on hot tables a key share lock on the parent costs more than it guards."""
    return Field(default=None, sa_column=Column(Id, nullable=null, comment=comment, primary_key=primary))


def fk(
    target: str, *, null: bool = False, cascade: bool = True, comment: str | None = None, primary: bool = False
) -> Any:
    """Make an id with a foreign key."""
    key = ForeignKey(target, ondelete="CASCADE" if cascade else None)
    return Field(default=None, sa_column=Column(Id, key, nullable=null, comment=comment, primary_key=primary))


def string(*, null: bool = False, default: str | None = None, comment: str | None = None, primary: bool = False) -> Any:
    """Text. `default` is the plain value."""
    server = None if default is None else text(f"'{default}'")
    return Field(
        default=default,
        sa_column=Column(Text, nullable=null, server_default=server, comment=comment, primary_key=primary),
    )


def words(*, default: str | None = "{}", comment: str | None = None) -> Any:
    """Make a list of short texts (``text[]``)."""
    server = None if default is None else text(f"'{default}'")
    return Field(sa_column=Column(ARRAY(Text), nullable=False, server_default=server, comment=comment))


def json(*, null: bool = False, default: str | None = None, comment: str | None = None) -> Any:
    """JSONB. `default` is SQL, such as ``'{}'``."""
    return Field(
        default=None, sa_column=Column(JSONB, nullable=null, server_default=_default(default), comment=comment)
    )


def time(*, null: bool = False, now: bool = False, comment: str | None = None) -> Any:
    """Make a time (``timestamptz``), UTC. `now` makes the server's clock the default."""
    return Field(
        default=None,
        sa_column=Column(
            DateTime(timezone=True), nullable=null, server_default=text("now()") if now else None, comment=comment
        ),
    )


def count(*, null: bool = False, default: int | None = 0, comment: str | None = None, primary: bool = False) -> Any:
    """Make a 32-bit integer."""
    server = None if default is None else text(str(default))
    return Field(
        default=default,
        sa_column=Column(Integer, nullable=null, server_default=server, comment=comment, primary_key=primary),
    )


def big(*, null: bool = False, default: int | None = 0, comment: str | None = None) -> Any:
    """Make a 64-bit integer."""
    server = None if default is None else text(str(default))
    return Field(default=default, sa_column=Column(BigInteger, nullable=null, server_default=server, comment=comment))


def number(*, null: bool = False, comment: str | None = None) -> Any:
    """Make a double."""
    return Field(default=None, sa_column=Column(Float, nullable=null, comment=comment))


def money(*, null: bool = True, default: int | None = None, comment: str | None = None) -> Any:
    """Make an amount of US dollars, exact to a hundred-millionth: token prices have many places."""
    server = None if default is None else text(str(default))
    column = Column(Numeric(18, 8), nullable=null, server_default=server, comment=comment)
    return Field(default=default, sa_column=column)


def boolean(*, default: bool = False, comment: str | None = None) -> Any:
    """Make a boolean that is never null."""
    server = text("true" if default else "false")
    return Field(default=default, sa_column=Column(Boolean, nullable=False, server_default=server, comment=comment))


def one_of(column: str, vocabulary: Any) -> CheckConstraint:
    """Return the CHECK that keeps a text column within a vocabulary: a new word is one line of a migration."""
    return CheckConstraint(f"{column} IN {sql_list(words_of(vocabulary))}", name=column)
