"""Tasks are worked on in the hours of their tenant's time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from nova_workers.base.errors import Unstorable
from nova_workers.domain.tasks.sql.records import find_task, list_tasks
from nova_workers.domain.tasks.sql.schedule import find_due
from nova_workers.ledger.database import Database
from tests.integration.capabilities.tool_caller import add_tenants
from tests.integration.scheduling.task_harness import TaskHarness
from tests.requirements import proves

TENANT = "ten_1"
SPRING, AUTUMN, PLAIN = "2026-03-29", "2026-10-25", "2026-06-01"
"""Days on which the clocks of Berlin change, and one on which they do not."""


@pytest.fixture
async def due(database: Database) -> Database:
    """A tenant with a task that has been due for long."""
    await add_tenants(database)
    await database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status, work_at)"
        " VALUES (:tenant_id, 1, 'Tidy up', 'a', 'person', 'active', '2020-01-01')",
        tenant_id=TENANT,
    )
    return database


async def _hours(database: Database, start: int, end: int, zone: str) -> None:
    await database.execute(
        "UPDATE tenants SET work_from = :work_from, work_until = :work_until, timezone = :timezone"
        " WHERE id = :tenant_id",
        tenant_id=TENANT,
        work_from=start,
        work_until=end,
        timezone=zone,
    )


async def _works(database: Database, at: datetime) -> bool:
    async with database.connection() as connection:
        return bool(await find_due(connection, most_of_a_tenant=10, at=at))


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@proves("work.hours")
@pytest.mark.parametrize(
    ("at", "works"),
    [
        # The day before the clocks go forward: six in the morning is 05:00 UTC, and from then on 04:00 UTC.
        ("2026-03-28 04:59:59", False),
        ("2026-03-28 05:00:00", True),
        (f"{SPRING} 03:59:59", False),
        (f"{SPRING} 04:00:00", True),
        (f"{SPRING} 19:59:59", True),
        (f"{SPRING} 20:00:00", False),
        (f"{AUTUMN} 04:59:59", False),
        (f"{AUTUMN} 05:00:00", True),
        (f"{AUTUMN} 20:59:59", True),
        (f"{AUTUMN} 21:00:00", False),
    ],
)
async def test_the_day_begins_and_ends_with_the_clocks_of_the_tenant(due: Database, at: str, works: bool) -> None:
    await _hours(due, 6, 22, "Europe/Berlin")
    assert await _works(due, _utc(at)) is works


@proves("work.hours")
async def test_a_skipped_hour_is_not_worked_and_a_repeated_one_is_worked_twice(due: Database) -> None:
    await _hours(due, 2, 3, "Europe/Berlin")
    quarters = [timedelta(minutes=15 * count) for count in range(96)]
    worked = {
        day: sum([await _works(due, _utc(f"{day} 00:00") - timedelta(hours=2) + passed) for passed in quarters])
        for day in (SPRING, AUTUMN, PLAIN)
    }
    assert worked == {SPRING: 0, AUTUMN: 8, PLAIN: 4}


@proves("work.hours")
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Pacific/Kiritimati", "America/St_Johns", "Australia/Lord_Howe"])
@pytest.mark.parametrize(("start", "end"), [(6, 22), (22, 6), (0, 24), (9, 9)])
async def test_the_hours_are_those_that_the_zone_database_says(due: Database, zone: str, start: int, end: int) -> None:
    await _hours(due, start, end, zone)
    for day in ("2026-04-05", "2026-10-04", "2026-11-01"):
        for half in range(48):
            at = _utc(f"{day} 00:00") + timedelta(minutes=30 * half)
            hour = at.astimezone(ZoneInfo(zone)).hour
            good = (start <= hour < end) if start < end else (start == end or hour >= start or hour < end)
            assert await _works(due, at) is good, (at, hour)


@proves("work.hours")
async def test_outside_its_hours_a_tenant_s_tasks_wait_and_another_s_do_not(task_harness: TaskHarness) -> None:
    database = task_harness.harness.database
    await add_tenants(database)
    await task_harness.task("Sweep")
    await database.execute("UPDATE tenants SET work_from = 0, work_until = 24")
    for tenant_id in (task_harness.tenant_id, "ten_2"):
        await task_harness.close(tenant_id)
    await database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status, work_at)"
        " SELECT id, 1, 'Tidy up', 'a', 'person', 'active', now() FROM tenants WHERE id LIKE 'ten__'"
    )
    assert await task_harness.tick() == 1
    assert [run["tenant_id"] for run in await task_harness.runs()] == ["ten_1"]


async def test_a_zone_that_the_database_does_not_know_is_refused(due: Database) -> None:
    with pytest.raises(Unstorable, match="InvalidParameterValueError"):
        await _hours(due, 6, 22, "Mars/Olympus")


async def test_tasks_of_tenants_are_started_in_turn(due: Database) -> None:
    await due.execute("UPDATE tenants SET work_from = 0, work_until = 24")
    await due.execute("DELETE FROM tasks")
    await due.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status, work_at)"
        " SELECT n.id, k, 'Tidy up', 'a', 'person', 'active', now() - make_interval(mins => 100 - k)"
        "   FROM tenants n, generate_series(1, 5) k WHERE n.id = 'ten_1' OR k > 3"
    )
    async with due.connection() as connection:
        found = await find_due(connection, most_of_a_tenant=3)
    assert sorted(found[:2]) == [("ten_1", 1), ("ten_2", 4)]
    assert [number for tenant_id, number in found if tenant_id == "ten_1"] == [1, 2, 3]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
@pytest.mark.parametrize(("start", "end"), [(2, 3), (20, 22), (5, 23)])
async def test_a_task_shows_the_time_at_which_it_is_actually_worked_on(
    due: Database, zone: str, start: int, end: int
) -> None:
    hour = datetime.now(ZoneInfo(zone)).hour
    await _hours(due, (hour + start) % 24, (hour + end) % 24, zone)
    async with due.connection() as connection:
        task = await find_task(connection, TENANT, 1)
        [listed] = await list_tasks(connection, TENANT, limit=10)
    assert task is not None
    assert task.work_at == listed.work_at
    assert task.work_at is not None
    assert timedelta(0) < task.work_at - datetime.now(UTC) < timedelta(days=1)
    assert await _works(due, task.work_at)
    assert not await _works(due, task.work_at - timedelta(seconds=1))


async def test_a_task_in_its_tenants_hours_shows_when_it_was_due(due: Database) -> None:
    await _hours(due, 0, 0, "UTC")
    async with due.connection() as connection:
        task = await find_task(connection, TENANT, 1)
    assert task is not None
    assert task.work_at == _utc("2020-01-01 00:00:00")
