"""`nova upgrade`: what an upgrade takes, read from a database of an earlier release."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

from models import migrate
from nova_workers.base.errors import InvalidInput
from nova_workers.base.release import release
from nova_workers.cli.operations import upgrade as command
from nova_workers.cli.operations.upgrade import examine
from nova_workers.ledger.schema import schema_head
from tests.requirements import proves


@pytest.fixture
def nova(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    monkeypatch.setenv("NOVA_DATABASE_URL", empty_url)
    return CliRunner()


@proves("upgrade.shown")
async def test_migrations_that_are_due_are_shown_with_their_locks_and_what_runs(empty_url: str) -> None:
    await migrate.upgrade(empty_url, "0068")
    old = await asyncpg.connect(empty_url, server_settings={"application_name": "nova-worker"})
    new = await asyncpg.connect(empty_url, server_settings={"application_name": f"nova-api {release()}"})
    found = await examine(empty_url)
    await old.close()
    await new.close()
    assert (found.schema, found.needed) == ("0068", schema_head())
    assert [step.revision for step in found.migrations][:2] == ["0069", "0070"]
    (index,) = found.migrations[0].tables
    assert (index.table, index.waits, index.work) == ("runs", "", ["indexed beside"])
    rewritten = next(line for line in found.migrations[1].tables if line.table == "agents")
    assert (rewritten.waits, rewritten.work) == ("reads and writes wait", ["rewritten"])
    assert rewritten.bytes > 0
    assert found.processes == [
        {"program": "nova-api", "release": release(), "sessions": 1},
        {"program": "nova-worker", "release": "", "sessions": 1},
    ]
    assert found.next == ["nova migrate", "replace API, workers and beat of 0.2.0 or earlier, in any order"]
    assert found.problems == []
    assert await migrate.current(empty_url) == "0068"


async def test_a_long_transaction_stands_in_the_way(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate.upgrade(empty_url, "0068")
    monkeypatch.setattr(command, "LONG_TRANSACTION_S", 0)
    # Other tests have older ones in other databases of the server, of which the product looks at all.
    here = command.OLDEST_TRANSACTION.replace("IS NOT NULL", "IS NOT NULL AND datname = current_database()")
    monkeypatch.setattr(command, "OLDEST_TRANSACTION", here)
    backup = await asyncpg.connect(empty_url, server_settings={"application_name": "pg_dump"})
    async with backup.transaction():
        await backup.fetchval("SELECT 1")
        (problem,) = (await examine(empty_url)).problems
    await backup.close()
    assert "(pg_dump) is open for" in problem
    assert "pg_terminate_backend(" in problem


@proves("upgrade.newer")
@pytest.mark.parametrize(
    ("oldest", "code", "words"),
    [("0001", 0, "leave the schema as it is"), ("9998", 1, "install a later release")],
    ids=["that this release works on", "that it does not work on"],
)
async def test_a_way_back_to_this_release_is_safe_or_refused(
    empty_url: str, oldest: str, code: int, words: str
) -> None:
    await migrate.upgrade(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.execute(f"COMMENT ON TABLE alembic_version IS '{oldest}'")
    await connection.close()
    found = await examine(empty_url)
    assert words in "".join(found.problems if code else found.notes)
    assert bool(found.problems) == bool(code)


def test_the_command_migrates_when_it_is_not_to_check_only(nova: CliRunner, empty_url: str) -> None:
    shown = json.loads(nova.invoke(command.app, ["--check", "--json"]).stdout)
    assert (shown["schema"], shown["needed"], shown["next"]) == (None, schema_head(), ["nova migrate"])
    asyncio.run(migrate.upgrade(empty_url, "0076"))
    # Two documents would be none.
    assert isinstance(nova.invoke(command.app, ["--json", "--yes"]).exception, InvalidInput)
    assert asyncio.run(migrate.current(empty_url)) == "0076"
    refused = nova.invoke(command.app, [], input="n\n")
    assert (refused.exit_code, asyncio.run(migrate.current(empty_url))) == (1, "0076")
    assert "0078" in refused.output
    done = nova.invoke(command.app, ["--yes"])
    assert (done.exit_code, asyncio.run(migrate.current(empty_url))) == (0, schema_head()), done.output
    assert "nothing to migrate" in nova.invoke(command.app, []).output
