from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.redis_proxy import RedisProxy


@pytest.fixture
async def wire(redis_url: str, tmp_path: Path) -> AsyncIterator[RedisProxy]:
    """The way to Redis, which the test can cut."""
    async with RedisProxy(redis_url, tmp_path) as wire:
        yield wire
