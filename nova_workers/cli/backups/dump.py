"""Takes a backup of a database while a fleet uses it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nova_workers.base.errors import ConfigurationError
from nova_workers.cli.backups.container import Manifest, write_backup
from nova_workers.cli.backups.programs import (
    ProgramFailed,
    Programs,
    find_programs,
    last_lines,
    start,
    without_password,
)
from nova_workers.cli.backups.server import refuse_pooler
from nova_workers.cli.version import version_of
from nova_workers.domain.upkeep.sql import catalog
from nova_workers.ledger.database import Connection, PostgresDatabase
from nova_workers.ledger.schema import schema_revision

_AT_ONCE_BYTES = 1 << 20
_STATEMENT_S = 6 * 3_600.0
"""The time for the count of the largest table."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the manifest states beside the dump itself."""

    revision: str
    taken_at: datetime
    postgres: int
    pgvector: str
    roles: tuple[str, ...]
    master_keys: tuple[str, ...]


async def back_up(url: str, path: Path, files: Path | None = None) -> Manifest:
    """Write a backup of a database into a file: one moment of it, while others read and write.

    Args:
        url: Of the owner of the tables.
        path: Of the file.
        files: The folder of agents' directories, which are read after the database; None leaves them out.

    Raises:
        ConfigurationError: It is no fleet's database, its user may not read all of it, or there is no `pg_dump` for it.
        ProgramFailed: `pg_dump` failed.
        Unavailable: The database cannot be reached.
        OSError: The file cannot be written.
    """
    database = PostgresDatabase(url, pool_size=1, command_timeout_s=_STATEMENT_S)
    try:
        await refuse_pooler(database)
        async with AsyncExitStack() as held:
            connection = await held.enter_async_context(database.snapshot())
            return await write_snapshot(connection, url, path, files, end=held.aclose)
    finally:
        await database.close()


async def write_snapshot(
    connection: Connection,
    url: str,
    path: Path,
    files: Path | None = None,
    *,
    end: Callable[[], Awaitable[None]] | None = None,
) -> Manifest:
    """Write what a transaction sees into a file.

    Args:
        connection: In a transaction that sees one moment.
        url: Of the same database, for `pg_dump`.
        path: Of the file.
        files: See `back_up`.
        end: Ends the transaction, once the dump is written: until then vacuum removes nothing that was deleted since,
            and the files may take hours.
    """
    facts = await _facts(connection)
    programs = find_programs(facts.postgres)
    snapshot = await catalog.export_snapshot(connection)
    # While `pg_dump` reads: the transaction has to stay open until it has begun.
    counting = asyncio.create_task(catalog.count_rows(connection))
    try:
        finished = _Finished(counting)
        dump = _dump(programs, url, snapshot, finished, end)

        def manifest(size: int, digest: str) -> Manifest:
            return _manifest(facts, programs, finished, size, digest)

        return await write_backup(path, dump, manifest, files)
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


class _Finished:
    """The numbers of rows, once the dump has ended."""

    def __init__(self, counting: asyncio.Task[dict[str, int]]) -> None:
        self.counting = counting
        self.rows: dict[str, int] = {}


async def _facts(connection: Connection) -> _Facts:
    revision = await schema_revision(connection)
    if revision is None:
        raise ConfigurationError("This database has no tables of a fleet. Check NOVA_DATABASE_URL.")
    if not await catalog.owns_tables(connection):
        raise ConfigurationError(
            "This user is not the owner of the tables, who alone sees all rows. Give the owner's URL with "
            "NOVA_DATABASE_OWNER_URL."
        )
    return _Facts(
        revision=revision,
        taken_at=await connection.fetchval("SELECT now()"),
        postgres=await catalog.major_version(connection),
        pgvector=await catalog.vector_version(connection),
        roles=await catalog.granted_roles(connection),
        master_keys=await catalog.master_key_ids(connection),
    )


async def _dump(
    programs: Programs, url: str, snapshot: str, finished: _Finished, end: Callable[[], Awaitable[None]] | None
) -> AsyncGenerator[bytes]:
    """Yield the output of `pg_dump`. Ends only if it succeeded and the rows are counted."""
    arguments = ["--format=custom", "--no-password", f"--snapshot={snapshot}", f"--dbname={without_password(url)}"]
    process = await start(programs, "pg_dump", arguments, url=url, stdin=DEVNULL, stdout=PIPE)
    if process.stdout is None or process.stderr is None:
        raise ProgramFailed("pg_dump was started without pipes.")
    errors = asyncio.create_task(process.stderr.read())
    try:
        while part := await process.stdout.read(_AT_ONCE_BYTES):
            yield part
        if await process.wait() != 0:
            raise ProgramFailed(f"pg_dump failed: {last_lines(await errors)}")
        finished.rows = await finished.counting
        if end is not None:
            await end()
    finally:
        if process.returncode is None:
            process.kill()
            # To its end, which closes the pipe.
            while await process.stdout.read(_AT_ONCE_BYTES):
                pass
            await process.wait()
        await asyncio.gather(errors, return_exceptions=True)


def _manifest(facts: _Facts, programs: Programs, finished: _Finished, size: int, digest: str) -> Manifest:
    return Manifest(
        nova=version_of("nova-workers"),
        schema_revision=facts.revision,
        taken_at=facts.taken_at,
        postgres=facts.postgres,
        pg_dump=programs.major,
        pgvector=facts.pgvector,
        roles=facts.roles,
        master_keys=facts.master_keys,
        rows=finished.rows,
        dump_bytes=size,
        dump_sha256=digest,
    )
