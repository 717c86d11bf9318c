"""Each test of the contract suite runs once for each engine."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.engines.claude_stage import ClaudeStage
from tests.contract.engines.stage import AnthropicStage, Bench, ScriptedStage, Stage, Witness
from tests.support.model_server import model_server


@pytest.fixture(params=["scripted", "anthropic", "claude_agent"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """An engine and its model."""
    if request.param == "scripted":
        yield ScriptedStage()
        return
    async with model_server() as server:
        stage = ClaudeStage(server) if request.param == "claude_agent" else AnthropicStage(server)
        yield stage
        await stage.engine.close()


@pytest.fixture
async def bench() -> Bench:
    """Tools to call."""
    return Bench()


@pytest.fixture
def witness() -> Witness:
    """Callbacks that write everything down."""
    return Witness()
