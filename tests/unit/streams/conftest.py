from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.wire_proxy import WireProxy


@pytest.fixture
async def wire(redis_url: str, tmp_path: Path) -> AsyncIterator[WireProxy]:
    """The way to Redis, which the test can cut."""
    async with WireProxy(redis_url, tmp_path) as wire:
        yield wire
