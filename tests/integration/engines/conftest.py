"""The anthropic engine before a model server that can misbehave."""

from collections.abc import AsyncIterator

import pytest

from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.servers.model_server import ModelServer, model_server


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        yield server


@pytest.fixture
async def engine(server: ModelServer) -> AsyncIterator[AnthropicEngine]:
    """The engine, without the SDK's retries."""
    engine = AnthropicEngine(api_key="the-key", base_url=server.url, max_retries=0)
    yield engine
    await engine.close()
