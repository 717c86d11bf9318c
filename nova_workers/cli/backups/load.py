"""Reads a backup into an empty database, and makes it a fleet that waits for its operator."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from nova_workers.base.errors import ConfigurationError, Conflict, InvalidInput
from nova_workers.base.release import part
from nova_workers.cli.backups.broker import EmptyRedis
from nova_workers.cli.backups.container import Backup
from nova_workers.cli.backups.programs import (
    ProgramFailed,
    Programs,
    find_programs,
    last_lines,
    start,
    without_password,
)
from nova_workers.cli.backups.server import Server, refuse_pooler
from nova_workers.domain.upkeep.sql import catalog
from nova_workers.domain.upkeep.sql.restored import (
    HOLDS_SINCE,
    Cleared,
    clear_restored,
    drop_pending_deliveries,
    hold_fleet,
    pause_fleet,
)
from nova_workers.ledger.database import Database, PostgresDatabase

migrate, ensure_login = part("models.migrate"), part("models.rights.logins").ensure_login
_restored = part("models.rights.restored")
create_database, finish_schema, prepare_server = (
    _restored.create_database,
    _restored.finish_schema,
    _restored.prepare_server,
)

_STATEMENT_S = 6 * 3_600.0
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_LEFT_OUT = re.compile(
    # Rights of an owner who may have another name here: `finish_schema` gives them to the new owner.
    r" DEFAULT ACL "
    # Only the owner of an extension may comment on it, who may be an administrator.
    r"| COMMENT - EXTENSION "
    # A database without its revision is none that a fleet starts on. It is recorded when the rows were compared.
    r"| TABLE DATA public alembic_version "
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A restored database: its rows in all tables, and what was in progress in the backup."""

    rows: int
    cleared: Cleared
    revision: str


def check_backup(backup: Backup) -> None:
    """Refuse a backup that this version cannot read.

    Raises:
        InvalidInput: A newer version took it.
    """
    manifest = backup.manifest
    if manifest.schema_revision > migrate.head():
        raise InvalidInput(
            f"{str(backup.path)!r} was taken by nova {manifest.nova} at schema {manifest.schema_revision}; this "
            f"version knows schemas up to {migrate.head()}. Restore it with that version of nova, or a later one.",
            field="file",
        )


async def make_database(server: Server, name: str) -> Server:
    """Create a database on a server, and return it.

    Raises:
        InvalidInput: The name has another form.
        Conflict: There is such a database.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is no name for a database: small letters, digits and underscores.", field="into")
    try:
        await create_database(server.url, name)
    except asyncpg.DuplicateDatabaseError as error:
        raise Conflict(f"There is a database {name!r} already. Choose another name, or drop it.") from error
    return server.named(name)


async def load_backup(
    backup: Backup, server: Server, *, drop_deliveries: bool, empty_redis: EmptyRedis | None
) -> Loaded:
    """Restore a backup into an empty database, pause the fleet that it holds, and migrate it.

    Objects and rows are restored in one transaction. What follows it may fail, and leaves a database that is not empty;
    no fleet starts on it before its revision is recorded, and from then on its fleet is held.

    Args:
        backup: The file.
        server: The database.
        drop_deliveries: Whether what was pending is not to be sent.
        empty_redis: Called before anything is restored.

    Raises:
        Conflict: The database is not empty.
        ConfigurationError: The server is too old, lacks roles or pgvector, or there is no `pg_restore` for it.
        ProgramFailed: `pg_restore` failed, or the rows are not those of the backup.
        Unavailable: The database cannot be reached.
    """
    manifest = backup.manifest
    database = PostgresDatabase(server.url, pool_size=1, command_timeout_s=_STATEMENT_S)
    try:
        await refuse_pooler(database)
        programs = await _check_server(database, backup)
        await prepare_server(server.url)
        await _check_roles(database, backup)
        if empty_redis is not None:
            await empty_redis()
        await _restore(programs, backup, server.url)
        async with database.connection() as connection:
            found = await catalog.count_rows(connection)
        if found != dict(manifest.rows):
            raise ProgramFailed(
                "The restored rows are not those of the backup, so no fleet can use this database; drop it: "
                f"{_differences(manifest.rows, found)}"
            )
        taken = f"a backup of {manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC"
        is_old = manifest.schema_revision < HOLDS_SINCE
        cleared = None if is_old else await _hold(database, taken, drop_deliveries=drop_deliveries)
        if cleared is None:
            async with database.transaction() as connection:
                await pause_fleet(connection, f"{taken} is being restored: drop this database if that was interrupted")
        # From here on a fleet may start on it.
        await finish_schema(server.url, manifest.schema_revision)
        await migrate.upgrade(server.url)
        if server.used_url != server.url:
            await ensure_login(server.url, server.used_url)
        if cleared is None:
            cleared = await _hold(database, taken, drop_deliveries=drop_deliveries)
        await database.execute("ANALYZE")
    finally:
        await database.close()
    return Loaded(sum(found.values()), cleared, migrate.head())


async def _hold(database: Database, taken: str, *, drop_deliveries: bool) -> Cleared:
    """End what was in progress, and hold the fleet until an operator resumes it."""
    async with database.transaction() as connection:
        cleared = await clear_restored(connection)
        if drop_deliveries:
            await drop_pending_deliveries(connection, f"It was pending in {taken}, which was restored without it.")
        await hold_fleet(connection, f"restored from {taken}")
    return cleared


async def _check_server(database: Database, backup: Backup) -> Programs:
    manifest = backup.manifest
    async with database.connection() as connection:
        major = await catalog.major_version(connection)
        if await catalog.has_objects(connection):
            raise Conflict(
                "The database is not empty, and a backup is restored into an empty one only. Create a new one with "
                "--into NAME, or give another with NOVA_DATABASE_URL or NOVA_HOME."
            )
    if major < manifest.postgres:
        raise ConfigurationError(
            f"The server is Postgres {major}, and the backup is of Postgres {manifest.postgres}. Restore it into that "
            "version or a later one."
        )
    programs = find_programs(major)
    if programs.major < manifest.pg_dump:
        raise ConfigurationError(
            f"The backup was written by pg_dump {manifest.pg_dump}, and pg_restore is {programs.major}: put one of "
            f"version {manifest.pg_dump} on PATH."
        )
    return programs


async def _check_roles(database: Database, backup: Backup) -> None:
    async with database.connection() as connection:
        missing = await catalog.missing_roles(connection, backup.manifest.roles)
    if missing:
        statements = " ".join(f'CREATE ROLE "{role}";' for role in missing)
        raise ConfigurationError(
            f"The backup gives rights to roles that this server does not have: {', '.join(missing)}. Make them first: "
            f"{statements}"
        )


async def _restore(programs: Programs, backup: Backup, url: str) -> None:
    """Restore all objects and rows in one transaction."""
    with tempfile.NamedTemporaryFile("w", prefix="nova-restore-", suffix=".list") as chosen:
        listing = await _run(programs, backup, url, ["--list"])
        chosen.writelines(f"{line}\n" for line in listing.splitlines() if not _LEFT_OUT.search(line))
        chosen.flush()
        arguments = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-password"]
        await _run(
            programs, backup, url, [*arguments, f"--use-list={chosen.name}", f"--dbname={without_password(url)}"]
        )


async def _run(programs: Programs, backup: Backup, url: str, arguments: list[str]) -> str:
    """Run `pg_restore` on the dump inside the file, and return what it wrote."""
    file = os.open(backup.path, os.O_RDONLY)
    try:
        os.lseek(file, backup.offset, os.SEEK_SET)
        process = await start(programs, "pg_restore", arguments, url=url, stdin=file, stdout=PIPE)
    finally:
        os.close(file)
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise ProgramFailed(f"pg_restore failed, and nothing was restored: {last_lines(errors)}")
    return output.decode()


def _differences(wanted: Mapping[str, int], found: Mapping[str, int]) -> str:
    names = sorted(set(wanted) | set(found))
    return ", ".join(
        f"{name} has {found.get(name, 'no')} rows and not {wanted.get(name, 'any')}"
        for name in names
        if wanted.get(name) != found.get(name)
    )
