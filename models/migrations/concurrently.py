"""Indexes on tables that have rows already, made while the previous release reads and writes them.

Each call commits what the migration did before it, so a migration with such an index has nothing else. After a crash
the migration runs again from its beginning: an index that exists is skipped, and an invalid one, which the crash left
behind, is made again.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

_INVALID = sa.text("SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid)")


def create_index(
    name: str,
    table: str,
    columns: Sequence[str | sa.Label[object]],
    *,
    where: str | None = None,
    include: Sequence[str] = (),
    using: str = "btree",
    operators: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> None:
    """Make an index without a lock that holds up writers.

    Args:
        name: The index.
        columns: Columns, or expressions with a label.
        where: The condition of a partial index.
        include: Columns that it holds beside its keys.
        using: The access method.
        operators: The operator class of a column or label that does not have the default one.
        parameters: Storage parameters.
    """
    with op.get_context().autocommit_block():
        if op.get_bind().scalar(_INVALID, {"name": name}):
            op.drop_index(name, table, postgresql_concurrently=True)
        op.create_index(
            name,
            table,
            columns,
            postgresql_concurrently=True,
            postgresql_using=using,
            postgresql_ops=dict(operators or {}),
            postgresql_where=None if where is None else sa.text(where),
            postgresql_include=list(include) or None,
            postgresql_with=dict(parameters or {}),
            if_not_exists=True,
        )


def replace_index(name: str, table: str, columns: Sequence[str], *, include: Sequence[str]) -> None:
    """Exchange an index for one with other columns and the same name. At every moment there is one of the two."""
    fresh = f"{name}__new"
    create_index(fresh, table, columns, include=include)
    with op.get_context().autocommit_block():
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.execute(f'ALTER INDEX "{fresh}" RENAME TO "{name}"')
