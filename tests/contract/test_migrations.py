"""The migrations make exactly the schema that `models` describes."""

from __future__ import annotations

import asyncio
import re
import subprocess
from urllib.parse import urlsplit

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from models import migrate
from models.migrations.baseline import baseline_revision
from models.migrations.record import RECORD
from models.rights.audit_chain import AUDIT_ROLE
from models.tables import metadata
from nova_workers.devstack.servers.binaries import postgres_programs
from tests.requirements import proves
from tests.support.data.baseline import dump
from tests.support.data.migration_record import PAGE, measure, to_json, to_page


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
    options = ["--schema-only", "--no-owner", "--no-privileges", "--exclude-table=alembic_version"]
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


@proves("upgrade.baseline")
async def test_the_baseline_makes_what_the_chain_makes_with_its_owners_rights_and_rows(
    database_url: str, empty_url: str
) -> None:
    await migrate.upgrade(empty_url, from_baseline=False)
    # Of the whole: the random marks of its restricted mode alone differ between two dumps.
    by_chain, by_baseline = [
        re.sub(r"^\\.*$", "", await dump(url), flags=re.MULTILINE) for url in (empty_url, database_url)
    ]
    how = "run `python -m tests.support.data.baseline`: it writes the baseline again from the chain"
    assert by_baseline == by_chain, how
    assert "CREATE TABLE" in by_chain
    assert baseline_revision() <= migrate.head()


async def test_a_user_who_owns_the_database_alone_begins_with_the_baseline(database_url: str, empty_url: str) -> None:
    parts = urlsplit(empty_url)
    admin = await asyncpg.connect(empty_url)
    try:
        # As a provider of databases does: the extension and the roles are an administrator's.
        await admin.execute("CREATE EXTENSION vector; CREATE ROLE plain_owner LOGIN PASSWORD 'plain'")
        await admin.execute(f"ALTER DATABASE {parts.path[1:]} OWNER TO plain_owner")
        await migrate.upgrade(parts._replace(netloc=f"plain_owner:plain@{parts.netloc.rpartition('@')[2]}").geturl())
        # This user cannot give the audit log to a role of its own.
        without = [statement for statement in await _schema(database_url) if AUDIT_ROLE not in statement]
        assert await _schema(empty_url) == without
    finally:
        await admin.execute("REASSIGN OWNED BY plain_owner TO postgres; DROP OWNED BY plain_owner")
        await admin.execute("DROP ROLE plain_owner")
        await admin.close()


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
    # From here by the chain: the database is not a new one, and has the rights of its first migrations still.
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


_FIRST_BESIDE_A_RELEASE = "0027"
"""The migrations before it were made before there was a release to migrate beside."""


@proves("upgrade.shown")
async def test_what_each_migration_locks_is_recorded_and_indexes_lock_no_table_with_rows(empty_url: str) -> None:
    steps = await measure(empty_url)
    how = "run `python -m tests.support.data.migration_record`"
    assert to_json(steps) == RECORD.read_text("utf-8"), how
    assert to_page(steps) == PAGE.read_text("utf-8"), how
    assert steps[-1].revision == migrate.head()
    locking = {
        step.revision: table
        for step in steps
        for table, touch in step.tables.items()
        if step.revision >= _FIRST_BESIDE_A_RELEASE and {"indexed", "index dropped"} & set(touch.work)
    }
    assert locking == {}


async def test_an_index_that_a_crash_left_invalid_is_made_again(database_url: str, empty_url: str) -> None:
    await migrate.upgrade(empty_url, "0028")
    connection = await asyncpg.connect(empty_url)
    # As after a crash in the middle of 0029: its first index is not valid, and of one that it exchanges both are there.
    await connection.execute("CREATE INDEX ix_runs__ended ON runs (tenant_id)")
    await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_runs__ended'::regclass")
    await connection.execute("CREATE INDEX ix_runs__tenant_id_id__new ON runs (tenant_id, id) INCLUDE (agent_id)")
    await connection.close()
    await migrate.upgrade(empty_url)
    assert await _schema(empty_url) == await _schema(database_url)


async def test_threads_of_earlier_releases_get_what_began_them(empty_url: str) -> None:
    await migrate.upgrade(empty_url, "0077")
    connection = await asyncpg.connect(empty_url)
    await connection.execute("""
INSERT INTO tenants (id, name) VALUES ('ten_1', 'One');
INSERT INTO threads (id, tenant_id, agent_id, meta)
VALUES ('thr_empty', 'ten_1', 'nova', '{}'),
       ('thr_sent', 'ten_1', 'nova', '{}'),
       ('thr_fired', 'ten_1', 'nova', '{}'),
       ('thr_mail', 'ten_1', 'nova', '{"channel": "mail"}');
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, source)
VALUES ('run_1', 'ten_1', 'thr_sent', 'nova', 1, '[]', 'api'),
       ('run_2', 'ten_1', 'thr_sent', 'nova', 2, '[]', 'trigger'),
       ('run_3', 'ten_1', 'thr_fired', 'nova', 1, '[]', 'trigger'),
       ('run_4', 'ten_1', 'thr_mail', 'nova', 1, '[]', 'api');
""")
    await migrate.upgrade(empty_url, "0078")
    origins = dict(await connection.fetch("SELECT id, origin FROM threads"))
    await connection.close()
    assert origins == {"thr_empty": "api", "thr_sent": "api", "thr_fired": "trigger", "thr_mail": "channel"}
