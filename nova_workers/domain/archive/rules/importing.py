"""Import of an archive: whole or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.archive import ARCHIVE_FORMAT, ImportResult
from nova_workers.contracts.skills import MAX_FILES, MAX_SKILL_BYTES
from nova_workers.domain.archive.rules.rows import MAX_TASK_ID, AgentChecks, checked_row
from nova_workers.domain.archive.sql import writing as ledger
from nova_workers.domain.archive.sql.tables import KeptTable, load_tables
from nova_workers.domain.skills.rules.format import check_files
from nova_workers.domain.skills.sql import load_skills, specs_with_skills
from nova_workers.ledger.database import Connection
from nova_workers.ledger.keepalive import kept_awake
from nova_workers.ledger.work import Work

_ROWS_AT_ONCE = 500
_CHARS_AT_ONCE = 4_000_000


class _Importer:
    """Reads one archive into one tenant, in the transaction of its connection.

    Rows are written some hundreds at a time, parents first, so that an archive of any size takes little memory.
    """

    def __init__(
        self,
        connection: Connection,
        tenant_id: str,
        *,
        merge: bool,
        agents: AgentChecks,
        check_steers: Callable[[str, AgentSpec], None],
        tables: Mapping[str, KeptTable],
    ) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._merge = merge
        self._agents = agents
        self._check_steers = check_steers
        self._tables = tables
        self._waiting: dict[str, list[JsonObject]] = {name: [] for name in tables}
        self._rows = self._chars = 0
        self._line = 0
        self._begun = self._ended = False
        self._written: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._secrets: list[str] = []

    async def take(self, record: Any, chars: int) -> None:
        """Take one line of the archive.

        Args:
            record: The parsed line.
            chars: Its size.

        Raises:
            InvalidInput: It is no line of an archive, or a row that cannot be imported; the message names the line.
            Conflict: The row exists already.
        """
        self._line += 1
        if self._ended:
            raise self._wrong("there is a line after the end")
        match record:
            case {"table": "archive", "row": {"format": int(form), "next_task_id": int(next_task)}} if not self._begun:
                await self._begin(form, next_task)
            case {"table": "end", "row": dict()} if self._begun:
                self._ended = True
            case {"table": "secrets", "row": {"name": str(name)}} if self._begun:
                self._secrets.append(name[:200])
            case {"table": str(table), "row": dict(row)} if self._begun and table in self._tables:
                self._waiting[table].append(await self._checked(table, row))
                self._rows += 1
                self._chars += chars
                if self._rows >= _ROWS_AT_ONCE or self._chars >= _CHARS_AT_ONCE:
                    await self._write()
            case _:
                raise self._wrong(
                    'it is no line of an archive. The first is {"table": "archive", …}, each has a table and a row, '
                    f"and the tables are {', '.join(self._tables)}"
                )

    async def finish(self) -> ImportResult:
        """Write the remaining rows, and check the whole.

        Raises:
            InvalidInput: The archive is truncated, a row refers to one outside it, an agent differs from its newest
                version, or the files of a skill cannot be in one directory.
            Forbidden: An agent that has a written skill, or a skill with a written file, has a right that the author of
                the import lacks.
            Conflict: A row exists already.
        """
        if not self._ended:
            raise InvalidInput("The archive has no end: it was cut. Nothing was imported; export it anew.", field="end")
        await self._write()
        await ledger.check_references(self._connection, self._tenant_id, self._tables.values())
        written = await ledger.lock_skills(self._connection, self._tenant_id)
        await ledger.check_agents(self._connection, self._tenant_id)
        await self._check_skills()
        for agent_id, spec in (await specs_with_skills(self._connection, self._tenant_id, written)).items():
            self._check_steers(agent_id, spec)
        return ImportResult(written=dict(self._written), kept=dict(self._kept), secrets=self._secrets)

    async def _check_skills(self) -> None:
        """Check the files of each skill together, one skill at a time: each file was checked when it was read."""
        large = await ledger.oversized_skill(
            self._connection, self._tenant_id, most_files=MAX_FILES, most_bytes=MAX_SKILL_BYTES
        )
        if large is not None:
            raise InvalidInput(
                f"skill_files of {large!r}: a skill has at most {MAX_FILES} files, {MAX_SKILL_BYTES} bytes in all.",
                field="skill_files",
            )
        for name in await ledger.skills_with_files(self._connection, self._tenant_id):
            for skill in await load_skills(self._connection, self._tenant_id, [name]):
                try:
                    check_files(skill.files)
                except InvalidInput as error:
                    raise InvalidInput(f"skill_files of {name!r}: {error.message}", field="skill_files") from error

    async def _begin(self, form: int, next_task_id: int) -> None:
        if form != ARCHIVE_FORMAT:
            raise self._wrong(f"the archive has the format {form}, and this version reads {ARCHIVE_FORMAT}")
        if not 1 <= next_task_id <= MAX_TASK_ID:
            raise self._wrong(f"next_task_id is {next_task_id}")
        self._begun = True
        await ledger.begin_import(self._connection, self._tenant_id, next_task_id=next_task_id)

    async def _write(self) -> None:
        seeds = [row["id"] for row in self._waiting["agents"]]
        if seeds and not self._merge:
            await ledger.drop_untouched_seeds(self._connection, self._tenant_id, seeds)
        for name, table in self._tables.items():
            rows = self._waiting[name]
            if rows:
                written = await ledger.write_rows(self._connection, self._tenant_id, table, rows, merge=self._merge)
                self._written[name] += written
                self._kept[name] += len(rows) - written
                self._waiting[name] = []
        self._kept = +self._kept
        self._rows = self._chars = 0

    async def _checked(self, table: str, row: JsonObject) -> JsonObject:
        try:
            if table == "triggers":
                # Cron lines take some milliseconds each: not on the loop.
                return await asyncio.to_thread(checked_row, self._tables[table], row, self._agents)
            return checked_row(self._tables[table], row, self._agents)
        except InvalidInput as error:
            raise self._wrong(error.message.removesuffix(".")) from error

    def _wrong(self, problem: str) -> InvalidInput:
        return InvalidInput(f"Line {self._line} of the archive: {problem}.", field=f"line {self._line}")


async def import_archive(
    work: Work,
    tenant_id: str,
    lines: AsyncIterator[tuple[Any, int]],
    *,
    merge: bool,
    agents: AgentChecks,
    check_steers: Callable[[str, AgentSpec], None],
    with_effects: bool,
) -> ImportResult:
    """Import an archive in one transaction: whole, or not at all.

    Args:
        lines: Each parsed line, and its size.
        merge: Skip rows that exist already, rather than refuse the whole archive.
        agents: Checks agents and their versions.
        check_steers: Raises `Forbidden` for an agent, and its configuration, whose skills the author may not write.
        with_effects: Queue the effects of imported runs.

    Returns:
        The numbers of written rows.

    Raises:
        InvalidInput: A row cannot be imported; the message names the line.
        Forbidden: The author lacks a right of an agent of the archive, or of one whose skills it writes.
        Conflict: A row exists already.
    """
    async with work.begin() as tx:
        connection = tx.connection
        tables = await load_tables(connection)
        importer = _Importer(
            connection,
            tenant_id,
            merge=merge,
            agents=agents,
            check_steers=check_steers,
            tables=tables,
        )
        # Lines may come slowly, and most of them send no statement.
        async with kept_awake(connection) as in_use:
            async for record, chars in lines:
                async with in_use:
                    await importer.take(record, chars)
        result = await importer.finish()
        if with_effects and await ledger.end_import(connection, tenant_id):
            tx.ring_effects()
    return result
