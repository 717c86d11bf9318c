"""What each migration does to tables that are there before it, measured on an empty database.

``python -m tests.support.data.migration_record`` writes `models/migrations/record.json` and
`docs/reference/migrations.md`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final, get_args

from sqlalchemy import Connection, Engine, event, text

from models import migrate
from models.migrations.record import RECORD, Lock, Step, Touch, Work
from tests.support.data.documents import ROOT
from tests.support.servers.databases import own_database, own_postgres

PAGE: Final = ROOT / "docs" / "reference" / "migrations.md"
_VERSIONS: Final = ROOT / "models" / "migrations" / "versions"
_STRENGTH: Final = get_args(Lock)
_WORK: Final = get_args(Work)
_CHANGES: Final = re.compile(r"\b(?:UPDATE|DELETE FROM) (\w+) ")
_BESIDE: Final = re.compile(r'(?:CREATE (?:UNIQUE )?|DROP )INDEX CONCURRENTLY (?:IF (?:NOT )?EXISTS )?"?(\w+)')

_CATALOG: Final = text("""
WITH tables AS (
    SELECT oid, relname, relfilenode FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'
)
SELECT 'table' AS kind, oid, 0 AS part, relname AS name, oid AS table_oid, relfilenode::text AS state FROM tables
UNION ALL
SELECT 'index', c.oid, 0, c.relname, i.indrelid, ''
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN tables t ON t.oid = i.indrelid
UNION ALL
SELECT 'constraint', o.oid, 0, o.conname, o.conrelid, o.convalidated::text
  FROM pg_constraint o JOIN tables t ON t.oid = o.conrelid WHERE o.contype IN ('c', 'f')
UNION ALL
SELECT 'column', a.attrelid, a.attnum, a.attname, a.attrelid, a.attnotnull::text
  FROM pg_attribute a JOIN tables t ON t.oid = a.attrelid WHERE a.attnum > 0
""")
_LOCKS: Final = text("""
SELECT relation AS table_oid, mode FROM pg_locks
 WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted
""")
_AT: Final = text("SELECT version_num FROM alembic_version")
_HAS_STARTED: Final = text("SELECT to_regclass('alembic_version') IS NOT NULL")
_LOCK_OF: Final[Mapping[str, Lock]] = {
    "ShareLock": "writes",
    "ShareRowExclusiveLock": "writes",
    "ExclusiveLock": "writes",
    "AccessExclusiveLock": "all",
}
_CHANGES_ROWS: Final = "RowExclusiveLock"

_Catalog = dict[tuple[str, int, int], tuple[str, int, str]]
"""By kind, id and number of a column: the name, the id of the table, and what of it can change."""


@dataclass
class _Recorder:
    """Collects what the migrations of one connection do, at each of its commits."""

    steps: dict[str, dict[str, Touch]] = field(default_factory=dict[str, dict[str, Touch]])
    _before: _Catalog = field(default_factory=_Catalog)
    _pending: dict[str, tuple[set[Lock], set[Work]]] = field(default_factory=dict[str, tuple[set[Lock], set[Work]]])
    _beside: set[str] = field(default_factory=set[str])
    _at: str | None = None

    def on_statement(self, *given: object) -> None:
        self._beside.update(_BESIDE.findall(str(given[2])))

    def on_commit(self, connection: Connection) -> None:
        """Compare the catalog with that of the last commit, before this one."""
        if not connection.scalar(_HAS_STARTED):
            return
        after: _Catalog = {
            (row.kind, row.oid, row.part): (row.name, row.table_oid, row.state) for row in connection.execute(_CATALOG)
        }
        old = {oid: name for (kind, oid, _), (name, _, _) in self._before.items() if kind == "table"}
        tables = {oid for kind, oid, _ in after if kind == "table"}
        locked = set[str]()
        for row in connection.execute(_LOCKS):
            if row.table_oid in old:
                self._note(old[row.table_oid], row.mode, locked)
        for key, (name, table, state) in after.items():
            if table in old and (work := self._work(key[0], name, self._before.get(key), state)) is not None:
                beside = work == "checked" and old[table] not in locked
                self._of(old[table])[1].add("checked beside" if beside else work)
        for (kind, oid, part), (name, table, _) in self._before.items():
            if kind == "index" and table in tables and (kind, oid, part) not in after and name not in self._beside:
                self._of(old[table])[1].add("index dropped")
        self._before = after
        at = connection.scalar(_AT)
        if at is not None and at != self._at:
            for table in _updated_in_portions(at) & set(old.values()):
                self._of(table)[1].add("updated")
            self.steps[at] = {table: _touch(*found) for table, found in sorted(self._pending.items())}
            self._at, self._pending, self._beside = at, {}, set()

    def _of(self, table: str) -> tuple[set[Lock], set[Work]]:
        return self._pending.setdefault(table, (set(), set()))

    def _note(self, table: str, mode: str, locked: set[str]) -> None:
        if mode in _LOCK_OF:
            self._of(table)[0].add(_LOCK_OF[mode])
            locked.add(table)
        elif mode == _CHANGES_ROWS:
            self._of(table)[1].add("updated")

    def _work(self, kind: str, name: str, before: tuple[str, int, str] | None, state: str) -> Work | None:
        is_new = before is None
        has_changed = before is not None and before[2] != state
        if kind == "table" and has_changed:
            return "rewritten"
        if kind == "index" and is_new:
            return "indexed beside" if name in self._beside else "indexed"
        if state == "true" and (has_changed or (kind == "constraint" and is_new)):
            # A constraint of which the rows were checked, or a column that was nullable.
            return "checked"
        return None


def _touch(locks: set[Lock], work: set[Work]) -> Touch:
    strongest: Lock = max(locks, key=_STRENGTH.index) if locks else "none"
    return Touch(strongest, tuple(sorted(work, key=_WORK.index)))


@contextmanager
def _recorded() -> Generator[_Recorder]:
    recorder = _Recorder()
    event.listen(Engine, "before_cursor_execute", recorder.on_statement)
    event.listen(Engine, "commit", recorder.on_commit)
    try:
        yield recorder
    finally:
        event.remove(Engine, "before_cursor_execute", recorder.on_statement)
        event.remove(Engine, "commit", recorder.on_commit)


async def measure(url: str) -> list[Step]:
    """Migrate an empty database, and return what each migration did to the tables before it."""
    with _recorded() as recorder:
        await migrate.upgrade(url, from_baseline=False)
    return [Step(revision, _title(revision), tables) for revision, tables in recorder.steps.items()]


def _source(revision: str) -> ast.Module:
    (path,) = _VERSIONS.glob(f"{revision}_*.py")
    return ast.parse(path.read_text("utf-8"))


def _title(revision: str) -> str:
    return str(ast.get_docstring(_source(revision))).split("\n\n")[0].replace("\n", " ")


def _updated_in_portions(revision: str) -> set[str]:
    """Return the tables that a migration's statements name to change rows: on an empty one, it may execute none."""
    tree = _source(revision)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == "downgrade")]
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {table for each in texts for table in _CHANGES.findall(each)}


def to_json(steps: list[Step]) -> str:
    """Return the text of `record.json`: a migration a line."""
    lines = (
        f"{json.dumps(step.revision)}: "
        + json.dumps({"title": step.title, "tables": {name: asdict(touch) for name, touch in step.tables.items()}})
        for step in steps
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


_HEAD: Final = """# Migrations

Measured by a test: each migration runs on an empty database, and its locks and what it changed of the catalog are
read at each commit. `nova upgrade --check` shows those that are due, with the sizes of your tables
([upgrades](../operations.md#upgrades)).

- **waits**: which statements of others wait for it, on tables that were there before. Without *work*, for a moment.
- **work** grows with the rows: the table is *rewritten*, its rows are *checked* for a constraint, *indexed* or
  *updated*; an *index dropped* waits for all who use it. *Beside*: while others read and write.

| migration | | table | waits | work |
| --- | --- | --- | --- | --- |
"""
_WAITS: Final[Mapping[Lock, str]] = {"none": "", "writes": "writes", "all": "all"}


def to_page(steps: list[Step]) -> str:
    """Return the page with a line for each table that a migration touches."""
    return _HEAD + "".join(
        f"| {step.revision if number == 0 else ''} | {step.title if number == 0 else ''} | {line}\n"
        for step in steps
        for number, line in enumerate(_lines(step))
    )


def _lines(step: Step) -> list[str]:
    return [
        f"`{table}` | {_WAITS[touch.lock]} | {', '.join(touch.work)} |" for table, touch in step.tables.items()
    ] or ["only new tables | | |"]


async def _measure_own(admin_url: str) -> list[Step]:
    async with own_database(admin_url, template="template1") as url:
        return await measure(url)


def main() -> None:
    """Write the record and its page."""
    with own_postgres() as admin_url:
        steps = asyncio.run(_measure_own(admin_url))
    RECORD.write_text(to_json(steps), "utf-8")
    PAGE.write_text(to_page(steps), "utf-8")


if __name__ == "__main__":
    main()
