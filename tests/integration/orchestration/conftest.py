from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.support.harness.trees import Forest
from tests.support.harness.workers import Harness


@pytest.fixture
async def forest(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Forest]:
    """A fleet on this test's loop that runs orchestrations whose agents play scripts."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield Forest(harness)
    await harness.close()
