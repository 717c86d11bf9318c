"""What tests of what starts by itself begin with."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.scheduling.task_office import Office
from tests.support.executor import Floor


@pytest.fixture
async def floor(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Floor]:
    """A fleet on this test's loop, with one worker."""
    floor = Floor(database, redis, settings)
    await floor.open()
    floor.worker()
    yield floor
    await floor.close()


@pytest.fixture
async def office(floor: Floor) -> Office:
    """The tasks of that fleet, and their scheduler."""
    office = Office(floor)
    await office.open()
    return office
