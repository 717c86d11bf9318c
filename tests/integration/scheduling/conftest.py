"""Fixtures for tests of scheduled work."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.scheduling.task_harness import TaskHarness
from tests.support.harness.workers import Harness


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet on this test's loop, with one worker."""
    harness = Harness(database, redis, settings)
    await harness.open()
    harness.worker()
    yield harness
    await harness.close()


@pytest.fixture
async def task_harness(harness: Harness) -> TaskHarness:
    """The tasks of that fleet, and their scheduler."""
    task_harness = TaskHarness(harness)
    await task_harness.open()
    return task_harness
