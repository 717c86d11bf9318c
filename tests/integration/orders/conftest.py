from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.support.harness.orders import OrderDesk


@pytest.fixture
async def desk(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[OrderDesk]:
    """A fleet on this test's loop that executes work orders."""
    desk = OrderDesk(database, redis, settings)
    await desk.harness.open()
    yield desk
    await desk.harness.close()
