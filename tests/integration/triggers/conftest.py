from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.triggers.rig import Rig
from tests.support.executor import Floor


@pytest.fixture
async def rig(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Rig]:
    """A floor with triggers."""
    floor = Floor(database, redis, settings)
    await floor.open()
    yield Rig(floor)
    await floor.close()
