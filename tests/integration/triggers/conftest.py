from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.triggers.rig import Rig
from tests.support.harness.workers import Harness


@pytest.fixture
async def rig(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Rig]:
    """A harness with triggers."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield Rig(harness)
    await harness.close()
