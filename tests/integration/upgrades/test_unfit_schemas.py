"""Processes and commands on a database whose schema is of another release."""

from __future__ import annotations

import pytest

from models import migrate
from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.devstack.first_start import prepare_database
from nova_workers.domain.upkeep.rules.schema_watch import SchemaWatch
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.schema import Schema, read_schema, schema_head
from tests.requirements import proves
from tests.support.data.previous_release import REVISION
from tests.support.harness.logs import recorded_logs


async def _schema_is(database: Database, revision: str, oldest_processes: str = REVISION) -> None:
    await database.execute(f"UPDATE alembic_version SET version_num = '{revision}'")
    await database.execute(f"COMMENT ON TABLE alembic_version IS '{oldest_processes}'")


async def test_a_migrated_database_names_the_oldest_release_whose_processes_work_on_it(database: Database) -> None:
    async with database.connection() as connection:
        assert await read_schema(connection) == Schema(schema_head(), REVISION)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Schema(), ("never migrated", "nova migrate")),
        (Schema("0010", "0005"), ("'0010'", "'0044'", "nova migrate")),
        (Schema("0099", "0045"), ("'0099'", "'0045' and later", "install a later release")),
    ],
)
def test_a_schema_that_does_not_fit_is_named_with_what_to_do(schema: Schema, words: tuple[str, ...]) -> None:
    problem = schema.problem("0044")
    assert problem is not None
    assert all(word in problem for word in words)


@pytest.mark.parametrize("schema", [Schema("0044"), Schema("0044", "0012"), Schema("0061", "0044"), Schema("0061")])
def test_processes_work_on_their_own_schema_and_on_that_of_the_next_release(schema: Schema) -> None:
    assert schema.problem("0044") is None


@proves("upgrade.unfit")
async def test_a_process_reports_an_unfit_schema_once_and_refuses_work_until_it_fits(database: Database) -> None:
    watch = SchemaWatch(database)
    await _schema_is(database, "0001")
    with recorded_logs() as log:
        for _ in range(3):
            assert not await watch.look()
        with pytest.raises(Unavailable, match="run `nova migrate`"):
            watch.refuse_misfit()
        await _schema_is(database, schema_head())
        await watch.run()
        watch.refuse_misfit()
    assert log.getvalue().count("schema.does_not_fit") == 1
    assert log.getvalue().count("schema.fits") == 1


async def test_a_process_on_the_schema_of_the_next_release_works_and_reports_it_once(database: Database) -> None:
    await _schema_is(database, "9999", oldest_processes=schema_head())
    watch = SchemaWatch(database)
    with recorded_logs() as log:
        await watch.run()
    watch.refuse_misfit()
    assert log.getvalue().count("schema.of_later_release") == 1


async def test_a_process_on_the_schema_of_a_much_later_release_refuses_work(database: Database) -> None:
    await _schema_is(database, "9999", oldest_processes="9998")
    watch = SchemaWatch(database)
    assert not await watch.look()
    with pytest.raises(Unavailable, match="install a later release"):
        watch.refuse_misfit()


async def test_a_database_that_does_not_answer_refuses_nothing() -> None:
    watch = SchemaWatch(PostgresDatabase("postgresql://127.0.0.1:1/none", pool_size=1))
    assert not await watch.look()
    watch.refuse_misfit()


@proves("upgrade.unfit")
async def test_migrating_a_later_schema_changes_nothing(database: Database, database_url: str) -> None:
    await _schema_is(database, "9999", oldest_processes="9998")
    await migrate.upgrade(database_url)
    async with database.connection() as connection:
        assert await read_schema(connection) == Schema("9999", "9998")


async def test_nova_up_starts_on_the_next_release_and_refuses_a_much_later_one(
    settings: Settings, database: Database, database_url: str
) -> None:
    await _schema_is(database, "9999", oldest_processes=schema_head())
    assert (await prepare_database(settings, database_url)).exists()
    await _schema_is(database, "9999", oldest_processes="9998")
    with pytest.raises(ConfigurationError, match="install a later release"):
        await prepare_database(settings, database_url)
