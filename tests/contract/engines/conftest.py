"""Each test of the contract suite runs once for each engine."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.engines.claude_stage import LONG_WITH_CLAUDE, NOT_AGAIN, ClaudeStage
from tests.contract.engines.code_stage import NOT_OF_CODE, CodeStage
from tests.contract.engines.program_stage import LONG_WITH_PROGRAMS, OF_PROGRAMS, CodexStage, GeminiStage
from tests.contract.engines.stage import AnthropicStage, Bench, OpenAIStage, ScriptedStage, Stage, TurnRecorder
from tests.support.servers.installed_programs import why_no_program
from tests.support.servers.model_server import ModelServer, model_server


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip variants that would only cost time, and leave repeats with programs to `make test-long`."""
    for item in items:
        if isinstance(item, pytest.Function) and _repeats_with_a_program(item):
            item.add_marker(pytest.mark.long)
    again = [item for item in items if isinstance(item, pytest.Function) and _only_costs_time(item)]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item not in again]


def _repeats_with_a_program(item: pytest.Function) -> bool:
    callspec = getattr(item, "callspec", None)
    stage = None if callspec is None else callspec.params.get("stage")
    if callspec is None or stage not in _LONG_WITH:
        return False
    is_first = not any(at for name, at in callspec.indices.items() if name != "stage")
    return item.originalname in _LONG_WITH[stage] or not is_first


def _only_costs_time(item: pytest.Function) -> bool:
    callspec = getattr(item, "callspec", None)
    stage = None if callspec is None else callspec.params.get("stage")
    if stage in OF_PROGRAMS:
        return item.originalname not in OF_PROGRAMS[stage]
    if stage == "code":
        return item.originalname in NOT_OF_CODE
    return stage == "claude_agent" and item.originalname in NOT_AGAIN


_LONG_WITH = {"claude_agent": LONG_WITH_CLAUDE, **LONG_WITH_PROGRAMS}
_OVER_WIRE: dict[str, Callable[[ModelServer], Stage]] = {
    "anthropic": AnthropicStage,
    "claude_agent": ClaudeStage,
    "codex": CodexStage,
    "gemini": GeminiStage,
    "openai-chat": lambda server: OpenAIStage(server, "chat"),
    "openai-responses": lambda server: OpenAIStage(server, "responses"),
}


@pytest.fixture(params=["scripted", "code", *_OVER_WIRE])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """An engine and its model."""
    if request.param == "scripted":
        yield ScriptedStage()
        return
    if request.param == "code":
        yield CodeStage()
        return
    why = why_no_program(request.param) if request.param in OF_PROGRAMS else None
    if why is not None:
        pytest.skip(why)
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
