"""Each test of the contract suite runs once for each engine."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.engines.claude_stage import NOT_AGAIN, ClaudeStage
from tests.contract.engines.stage import AnthropicStage, Bench, OpenAIStage, ScriptedStage, Stage, TurnRecorder
from tests.support.servers.model_server import ModelServer, model_server


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip variants that would only cost time."""
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


_OVER_WIRE: dict[str, Callable[[ModelServer], Stage]] = {
    "anthropic": AnthropicStage,
    "claude_agent": ClaudeStage,
    "openai-chat": lambda server: OpenAIStage(server, "chat"),
    "openai-responses": lambda server: OpenAIStage(server, "responses"),
}


@pytest.fixture(params=["scripted", *_OVER_WIRE])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """An engine and its model."""
    if request.param == "scripted":
        yield ScriptedStage()
        return
    async with model_server() as server:
        stage = _OVER_WIRE[request.param](server)
        yield stage
        await stage.engine.close()


@pytest.fixture
async def bench() -> Bench:
    """Tools to call."""
    return Bench()


@pytest.fixture
def recorder() -> TurnRecorder:
    """Callbacks that record everything."""
    return TurnRecorder()
