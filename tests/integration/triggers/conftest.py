from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.support.harness.workers import Harness


@pytest.fixture
async def triggers(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[TriggerHarness]:
    """A harness with triggers."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield TriggerHarness(harness)
    await harness.close()
