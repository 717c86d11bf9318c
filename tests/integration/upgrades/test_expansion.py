"""The previous release's code runs on this schema: migrations expand what it uses, and take nothing away."""

from __future__ import annotations

import re
from dataclasses import dataclass

import asyncpg

from models import migrate
from nova_workers.domain.upkeep.sql.restored import (
    HOLDS_SINCE,
    Cleared,
    clear_restored,
    drop_pending_deliveries,
    hold_fleet,
)
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.data.previous_release import REVISION

# Columns with their types, and whether an INSERT must name them.
_COLUMNS = """
SELECT c.relname AS table_name, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull AS required, a.attnotnull AND NOT a.atthasdef AS must_be_given
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
"""

# What may refuse a row: checks, foreign keys, and unique indexes, each with its columns.
_RULES = """
SELECT conrelid::regclass::text AS table_name, conname AS name, pg_get_constraintdef(k.oid) AS definition,
       ARRAY(SELECT attname::text FROM pg_attribute a WHERE a.attrelid = conrelid AND a.attnum = ANY (conkey))
         AS columns
  FROM pg_constraint k WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f') AND conrelid <> 0
 UNION ALL
SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid),
       ARRAY(SELECT attname::text FROM pg_attribute a WHERE a.attrelid = indrelid AND a.attnum = ANY (indkey))
  FROM pg_index JOIN pg_class c ON c.oid = indrelid
 WHERE indisunique AND c.relnamespace = 'public'::regnamespace
"""

_FULFILLED = frozenset(
    {
        # Its vocabulary has these words, and no other.
        ("runs", "ck_runs__stop_reason"),
        ("turns", "ck_turns__stop_reason"),
        # It has this rule by another name.
        ("trigger_firings", "uq_trigger_firings__occurrence"),
    }
)
"""Rules that the previous release fulfils without having them."""

_WORD = re.compile(r"'([^']*)'::text")


@dataclass(frozen=True)
class _Column:
    type: str
    required: bool
    must_be_given: bool


@dataclass(frozen=True)
class _Rule:
    definition: str
    columns: frozenset[str]

    def admits(self, other: _Rule) -> bool:
        """Whether each value that another rule of this form admits passes this one too."""
        same_form = _WORD.sub("", self.definition).count("ANY") == _WORD.sub("", other.definition).count("ANY")
        return same_form and set(_WORD.findall(other.definition)) <= set(_WORD.findall(self.definition))


@dataclass(frozen=True)
class _Schema:
    columns: dict[tuple[str, str], _Column]
    rules: dict[tuple[str, str], _Rule]


async def _schema(url: str) -> _Schema:
    connection = await asyncpg.connect(url)
    try:
        columns = {
            (row["table_name"], row["name"]): _Column(row["type"], row["required"], row["must_be_given"])
            for row in await connection.fetch(_COLUMNS)
        }
        rules = {
            (row["table_name"], row["name"]): _Rule(row["definition"], frozenset(row["columns"]))
            for row in await connection.fetch(_RULES)
        }
    finally:
        await connection.close()
    return _Schema(columns, rules)


def _contractions(old: _Schema, new: _Schema) -> list[str]:
    """Return what code for the old schema may not survive."""
    found: list[str] = []
    for key, column in old.columns.items():
        now = new.columns.get(key)
        if now is None:
            found.append(f"{'.'.join(key)} is gone")
        elif now.type != column.type:
            found.append(f"{'.'.join(key)} was {column.type} and is {now.type}")
        elif now.required and not column.required:
            found.append(f"{'.'.join(key)} may not be null any more")
    tables = {table for table, _ in old.columns}
    for (table, name), column in new.columns.items():
        if table in tables and (table, name) not in old.columns and column.must_be_given:
            found.append(f"{table}.{name} is new and must be given")
    for (table, name), rule in new.rules.items():
        before = old.rules.get((table, name))
        concerns_old_code = table in tables and any((table, column) in old.columns for column in rule.columns)
        expands = before == rule or (table, name) in _FULFILLED or (before is not None and rule.admits(before))
        if concerns_old_code and not expands:
            found.append(f"{table}.{name} may refuse rows: {rule.definition}")
    return found


@proves("upgrade.expand")
async def test_migrations_since_the_previous_release_only_expand(empty_url: str) -> None:
    await migrate.upgrade(empty_url, REVISION)
    old = await _schema(empty_url)
    await migrate.upgrade(empty_url)
    assert _contractions(old, await _schema(empty_url)) == []


async def test_a_restore_holds_its_fleet_also_on_the_oldest_schema_that_it_names(empty_url: str) -> None:
    await migrate.upgrade(empty_url, HOLDS_SINCE)
    database = PostgresDatabase(empty_url, pool_size=1)
    async with database.transaction() as connection:
        assert await clear_restored(connection) == Cleared(0, 0, 0, 0)
        await drop_pending_deliveries(connection, "dropped")
        await hold_fleet(connection, "restored")
    assert await database.fetchval("SELECT holds_deliveries FROM switches")
    await database.close()


async def test_each_kind_of_contraction_is_found(empty_url: str) -> None:
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, gone int, other int, kind text, CHECK (kind IN ('x', 'y')))"
    )
    old = await _schema(empty_url)
    await connection.execute("""
        ALTER TABLE a DROP COLUMN gone, ALTER COLUMN other TYPE bigint, ALTER COLUMN kind SET NOT NULL,
              ADD COLUMN needed int NOT NULL, ADD COLUMN free int NOT NULL DEFAULT 0 CHECK (free < 10),
              DROP CONSTRAINT a_kind_check, ADD CONSTRAINT a_kind_check CHECK (kind IN ('x', 'z'));
        CREATE UNIQUE INDEX one_of_a_kind ON a (kind);
        CREATE TABLE b (id int PRIMARY KEY REFERENCES a);
    """)
    found = _contractions(old, await _schema(empty_url))
    await connection.close()
    assert sorted(line.partition(" may refuse")[0] for line in found) == [
        "a.a_kind_check",
        "a.gone is gone",
        "a.kind may not be null any more",
        "a.needed is new and must be given",
        "a.one_of_a_kind",
        "a.other was integer and is bigint",
    ]
