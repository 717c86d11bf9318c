"""A row in every table of a tenant, made from the models, for tests that no table may be forgotten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import CheckConstraint, DateTime, LargeBinary, Table
from sqlalchemy.ext.asyncio import AsyncConnection

from models.tables import metadata

OWNED = [table for table in metadata.sorted_tables if "tenant_id" in table.c]
"""Tables with rows of tenants, parents first."""


async def fill_tables(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    known: Mapping[str, dict[str, Any]] | None = None,
    given: Mapping[str, Any] | None = None,
) -> None:
    """Give a tenant a row in every table.

    Args:
        known: Keys of rows that exist, by table: none is added there.
        given: Values by ``table.column``; the other required columns get values that only name their table.
    """
    given = given or {}
    rows: dict[str, dict[str, Any]] = {"tenants": {"id": tenant_id}, **(known or {})}
    for table in OWNED:
        if table.name in rows:
            continue
        needed = [
            column.name
            for column in table.columns
            if column.name == "tenant_id"
            or f"{table.name}.{column.name}" in given
            or (column.foreign_keys and not column.nullable)
            or not (column.nullable or column.server_default is not None or column.computed or column.identity)
        ]
        rows[table.name] = {
            name: given.get(f"{table.name}.{name}", _value(table, name, tenant_id, rows)) for name in needed
        }
        await connection.execute(table.insert().values(rows[table.name]))


def _value(table: Table, name: str, tenant_id: str, rows: dict[str, dict[str, Any]]) -> Any:
    column = table.c[name]
    for key in column.foreign_keys:
        return rows[key.column.table.name][key.column.name]
    if name == "tenant_id":
        return tenant_id
    for check in table.constraints:
        allowed = re.match(rf"{name} IN \('(\w+)'", str(check.sqltext)) if isinstance(check, CheckConstraint) else None
        if allowed is not None:
            return allowed[1]
    if isinstance(column.type, DateTime):
        return datetime.now(UTC)
    if isinstance(column.type, LargeBinary):
        return f"{table.name}/{tenant_id}".encode()
    if column.type.__visit_name__ == "JSONB":
        return []
    if name == "embedding":
        return [1, 0]
    python = column.type.python_type
    if python is str:
        return f"{table.name}/{tenant_id}"
    return [] if python is list else 1
