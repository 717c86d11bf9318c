"""Each test of the contract suite runs once for each engine."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.engines.claude_stage import NOT_AGAIN, ClaudeStage
from tests.contract.engines.stage import AnthropicStage, Bench, ScriptedStage, Stage, TurnRecorder
from tests.support.servers.model_server import model_server


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would only cost time."""
    again = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.originalname in NOT_AGAIN
        and getattr(item, "callspec", None) is not None
        and item.callspec.params.get("stage") == "claude_agent"
    ]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item not in again]


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
def recorder() -> TurnRecorder:
    """Callbacks that write everything down."""
    return TurnRecorder()
