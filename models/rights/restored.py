"""Roles and rights of a restored database, which a dump does not have: they are of the server, or of the owner."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from .audit_chain import make_audit_role
from .row_security import DEFAULT_RIGHTS, make_roles

_RECORD = "INSERT INTO alembic_version (version_num) VALUES ($1)"


async def create_database(url: str, name: str) -> None:
    """Create a database on the server of a URL.

    Raises:
        asyncpg.DuplicateDatabaseError: There is one of this name.
    """
    await _execute(url, [f'CREATE DATABASE "{name}"'])


async def drop_database(url: str, name: str) -> None:
    """Drop a database on the server of a URL, with its connections."""
    await _execute(url, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'])


async def prepare_server(url: str) -> None:
    """Make the roles that the rights of a restored database name. Idempotent."""
    await _execute(url, [*make_roles(), make_audit_role()])


async def finish_schema(url: str, revision: str) -> None:
    """Give the tables of later migrations their rights, and record the revision of the restored schema.

    Until then no version of the fleet takes the database for one of its own.
    """
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(DEFAULT_RIGHTS)
            await connection.execute(_RECORD, revision)
    finally:
        await connection.close()


async def _execute(url: str, statements: Sequence[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
