"""The migrations make exactly the schema that `models` describes."""

from __future__ import annotations

import asyncio
import re
import subprocess

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from models import metadata, migrate
from nova_workers.devstack.servers.binaries import postgres_programs


async def _create_from_models(url: str) -> None:
    engine = migrate.engine_for(url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE EXTENSION vector"))
        await connection.run_sync(metadata.create_all)
    await engine.dispose()


async def _schema(url: str) -> list[str]:
    """Return every statement of the schema as Postgres itself describes it, sorted.

    The columns of a table and the words of a list are sorted too, since migrations add new ones at the end.
    """
    options = ["--schema-only", "--no-owner", "--exclude-table=alembic_version"]
    done = await asyncio.to_thread(
        subprocess.run, [postgres_programs() / "pg_dump", *options, url], capture_output=True, text=True, check=True
    )
    plain = re.sub(r"^(--.*|SET .*|SELECT pg_catalog.*|\\.*)$", "", done.stdout, flags=re.MULTILINE)
    statements = (statement.strip() for statement in plain.split(";\n"))
    return sorted(_LIST.sub(_sorted_words, _in_order(statement)) for statement in statements if statement)


_LIST = re.compile(r"(?<=ARRAY\[)'[^]]*(?=\])")


def _sorted_words(found: re.Match[str]) -> str:
    return ", ".join(sorted(found[0].split(", ")))


def _in_order(statement: str) -> str:
    if not statement.startswith("CREATE TABLE"):
        return statement
    first, *columns, last = statement.splitlines()
    return "\n".join([first, *sorted(column.rstrip(",") for column in columns), last])


async def test_migrations_make_exactly_the_schema_that_the_models_describe(database_url: str, empty_url: str) -> None:
    await _create_from_models(empty_url)
    assert await _schema(database_url) == await _schema(empty_url)


async def test_alembic_finds_nothing_to_generate(database_url: str) -> None:
    def compare(connection: Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    engine = migrate.engine_for(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []
    await engine.dispose()


async def test_a_database_goes_up_down_and_up_again(empty_url: str) -> None:
    assert await migrate.current(empty_url) is None
    await migrate.upgrade(empty_url)
    assert await migrate.current(empty_url) == migrate.head()
    before = await _schema(empty_url)
    await migrate.downgrade(empty_url, "base")
    assert await migrate.current(empty_url) is None
    assert not [statement for statement in await _schema(empty_url) if statement.startswith("CREATE TABLE")]
    await migrate.upgrade(empty_url)
    assert await _schema(empty_url) == before


async def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    before = await _schema(database_url)
    await migrate.upgrade(database_url)
    assert await _schema(database_url) == before


async def test_many_processes_may_migrate_at_once(empty_url: str) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(migrate.upgrade(empty_url))
    assert await migrate.current(empty_url) == migrate.head()


async def test_every_table_has_a_comment(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    silent = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
        "AND relname <> 'alembic_version' AND obj_description(oid, 'pg_class') IS NULL"
    )
    await connection.close()
    assert silent == []
