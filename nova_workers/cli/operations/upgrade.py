"""`nova upgrade`: what an upgrade to this release takes, and the part of it that the database needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, cast

import asyncpg
import typer

from nova_workers.base.config import load_settings
from nova_workers.base.errors import InvalidInput, Unavailable, in_one_line
from nova_workers.base.release import part, release
from nova_workers.cli.operations.database_checks import LONG_TRANSACTION_S, OLDEST_TRANSACTION
from nova_workers.cli.operations.migrate import migrate
from nova_workers.cli.target import find_servers
from nova_workers.cli.terminal.output import JsonOption, Output, age
from nova_workers.ledger.database import Connection
from nova_workers.ledger.schema import Schema, read_schema, schema_head

read_record = part("models.migrations.record").read_record

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_BYTES_PER_S: Final = 25_000_000
"""Of a table that is read, written or indexed; a careful figure for a cloud's disk."""
_CONNECT_S: Final = 5
_UNREACHABLE: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
_OF_WORK: Final[Mapping[str, str]] = {
    "rewritten": "is written again",
    "checked": "is read",
    "indexed": "gets an index",
    "index dropped": "loses an index",
    "updated": "has rows changed",
    "checked beside": "is read beside traffic",
    "indexed beside": "gets an index beside traffic",
}
_WAITING: Final[Mapping[str, str]] = {"all": "reads and writes wait", "writes": "writes wait", "none": ""}

_SIZES: Final = """
SELECT relname AS name, pg_table_size(oid) AS bytes FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_PROCESSES: Final = """
SELECT split_part(application_name, ' ', 1) AS program, split_part(application_name, ' ', 2) AS release,
       count(*)::int AS sessions
  FROM pg_stat_activity
 WHERE datname = current_database() AND application_name ~ '^nova-(api|worker)'
 GROUP BY 1, 2
 ORDER BY 1, 2
"""

CheckOption = Annotated[
    bool, typer.Option("--check", help="Change nothing; exit with 1 if something stands in the way.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class TableWork:
    """What a migration does to a table of this database.

    Attributes:
        waits: The statements of others that wait meanwhile; empty: none.
        work: What grows with the table; empty: it takes a moment.
        about_s: The time for it, reckoned from the table's size.
    """

    table: str
    waits: str
    work: list[str]
    bytes: int
    about_s: float


@dataclass(frozen=True, slots=True)
class DueMigration:
    """A migration that this database has not had."""

    revision: str
    title: str
    tables: list[TableWork]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What stands between a database with its processes and this release."""

    release: str
    schema: str | None
    needed: str
    migrations: list[DueMigration]
    processes: list[dict[str, Any]]
    """Sessions of APIs and workers by program and release; the release is empty for 0.2.0 and earlier ones."""
    problems: list[str] = field(default_factory=list[str])
    """What stands in the way."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def is_due(self) -> bool:
        """Whether the database needs `nova migrate`."""
        return self.schema is None or bool(self.migrations)

    @property
    def next(self) -> list[str]:
        """The steps that are left, in their order."""
        others = sorted({each["release"] or "0.2.0 or earlier" for each in self.processes} - {self.release})
        return [
            *(["nova migrate"] if self.is_due else []),
            *([f"replace API, workers and beat of {', '.join(others)}, in any order"] if others else []),
        ]


@app.command("upgrade")
def upgrade(*, check: CheckOption = False, yes: YesOption = False, json_mode: JsonOption = False) -> None:
    """Show what an upgrade to this release takes: migrations with their locks and times, and what runs. Then migrate.

    It needs the database only (NOVA_DATABASE_URL). The processes are replaced by your platform, afterwards.
    """
    if json_mode and not check:
        raise InvalidInput("--json shows what is due: give it with --check. `nova migrate --json` migrates.")
    settings = load_settings()
    url = find_servers(settings).database_url or settings.require_database_url()
    out = Output(json_mode=json_mode)
    found = asyncio.run(examine(url))
    if out.json:
        out.document({**asdict(found), "next": found.next})
    else:
        _show(out, found)
    if found.problems:
        raise typer.Exit(1)
    if check or not found.is_due:
        return
    if not yes:
        typer.confirm("Migrate now?", abort=True)
    migrate()


async def examine(url: str) -> Upgrade:
    """Look at a database, and change nothing.

    Raises:
        Unavailable: It cannot be reached.
    """
    try:
        # Without what belongs to a session: a pooler may stand between.
        connection = await asyncpg.connect(url, timeout=_CONNECT_S, statement_cache_size=0)
        try:
            async with connection.transaction(readonly=True):
                return await _examine(connection)
        finally:
            await connection.close()
    except _UNREACHABLE as error:
        raise Unavailable(f"The database cannot be read ({in_one_line(error)}). Check NOVA_DATABASE_URL.") from error


async def _examine(connection: asyncpg.Connection) -> Upgrade:
    needed = schema_head()
    schema = await read_schema(cast(Connection, connection))
    sizes = {row["name"]: row["bytes"] for row in await connection.fetch(_SIZES)}
    due = [
        DueMigration(
            step.revision,
            step.title,
            [_table_work(name, touch, sizes.get(name, 0)) for name, touch in step.tables.items()],
        )
        for step in (read_record(schema.revision) if schema.revision is not None else [])
    ]
    processes = [dict(row) for row in await connection.fetch(_PROCESSES)]
    problems, notes = _later_schema(schema, needed)
    problems += await _long_transactions(connection, due)
    return Upgrade(release(), schema.revision, needed, due, processes, problems, notes)


def _table_work(table: str, touch: Any, size: int) -> TableWork:
    about_s = len(touch.work) * size / _BYTES_PER_S
    return TableWork(table, _WAITING[touch.lock], list(touch.work), size, round(about_s, 1))


def _later_schema(schema: Schema, needed: str) -> tuple[list[str], list[str]]:
    """Return why this release cannot work on the schema of a later one, or that it can."""
    if schema.revision is None or schema.revision <= needed:
        return [], []
    problem = schema.problem(needed)
    if problem is not None:
        return [problem], []
    return [], [
        f"The database has the schema {schema.revision!r} of a later release, and processes of this one work on it. To "
        "go back, replace the processes and leave the schema as it is."
    ]


async def _long_transactions(connection: asyncpg.Connection, due: list[DueMigration]) -> list[str]:
    """Return the transaction for which indexes would wait, and behind which locks would queue."""
    row = await connection.fetchrow(OLDEST_TRANSACTION) if due else None
    if row is None or row["age_s"] < LONG_TRANSACTION_S:
        return []
    return [
        f"A transaction of {row['user']!r} ({row['program'] or 'no name'}) is open for {age(row['age_s'])}: migrations "
        f"would wait for it, and all others behind them. Wait until it ends, or SELECT "
        f"pg_terminate_backend({row['pid']})."
    ]


def _show(out: Output, found: Upgrade) -> None:
    at = found.schema or "nothing"
    number = len(found.migrations)
    due = "all migrations" if found.schema is None else f"{number} migrations" if found.is_due else "nothing to migrate"
    out.facts(
        [
            ("release", found.release),
            ("schema", f"at {at}, needs {found.needed}: {due}"),
            ("running", ", ".join(_process(each) for each in found.processes) or "no API and no worker"),
        ]
    )
    rows = [
        (step.revision if number == 0 else "", line.table, line.waits, _work(line), _time(line))
        for step in found.migrations
        for number, line in enumerate(step.tables or [TableWork("only new tables", "", [], 0, 0.0)])
    ]
    if rows:
        out.text()
        out.table(("migration", "table", "waits meanwhile", ("work", "fold"), "about"), rows)
    for note in found.notes:
        out.note(note)
    for problem in found.problems:
        out.note(f"✗ {problem}", "red")
    if found.next:
        out.note("Next: " + "; then ".join(found.next) + ".")


def _process(each: Mapping[str, Any]) -> str:
    return f"{each['program']} {each['release'] or '(0.2.0 or earlier)'} ({each['sessions']} sessions)"


def _work(line: TableWork) -> str:
    return ", ".join(_OF_WORK[each] for each in line.work)


def _time(line: TableWork) -> str:
    if not line.work:
        return "a moment" if line.waits else ""
    return "under 1 s" if line.about_s < 1 else age(line.about_s)
