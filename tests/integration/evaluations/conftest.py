from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.support.harness.workers import Harness


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet on this test's loop, without workers yet."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield harness
    await harness.close()
