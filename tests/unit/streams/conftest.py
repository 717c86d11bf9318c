from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.fault_proxy import FaultProxy


@pytest.fixture
async def wire(redis_url: str, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """The way to Redis, which the test can cut."""
    async with FaultProxy.to_redis(redis_url, tmp_path) as wire:
        yield wire
