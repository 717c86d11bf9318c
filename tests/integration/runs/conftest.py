from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from tests.support.executor import Floor


@pytest.fixture
async def floor(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Floor]:
    """A fleet on this test's loop, without workers yet."""
    floor = Floor(database, redis, settings)
    await floor.open()
    yield floor
    await floor.close()
