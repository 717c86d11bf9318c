"""Whatever a tool raises is its result, and the turn goes on."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.contracts.content import text_block, text_of
from nova_workers.contracts.engine import EngineOptions, ToolCall, TurnListener
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn import Ask, Draft, Interruption, Response, ToolOutcome, Turn


class Panic(BaseException):
    """As extensions in Rust raise it."""


class Model:
    """Calls the tool once."""

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        if ask.step:
            return Response((text_block("Pity"),), "end", TokenUsage())
        return Response(({"type": "tool_use", "id": "a", "name": "f", "input": {}},), "tools", TokenUsage())


class RaisingTools:
    """One tool, which raises."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def is_idempotent(self, name: str) -> bool:
        return False

    async def call(self, call: ToolCall) -> ToolOutcome:
        await asyncio.sleep(0)
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("a bug"),
        MemoryError(),
        RecursionError(),
        asyncio.CancelledError(),
        SystemExit(3),
        Panic("at the tool"),
        BaseExceptionGroup("all of them", [SystemExit(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_tool_raises_is_its_result(error: BaseException) -> None:
    with Interruption() as interruption:
        turn = Turn(Model(), RaisingTools(error), EngineOptions(), TurnListener(), interruption)
        result = await asyncio.wait_for(turn.play("hi", provider="p"), 30)
    assert (result.text, result.stop_reason) == ("Pity", "end_turn")
    (call,) = result.tool_calls
    assert call.status == "failed"
    assert f"f failed: {type(error).__name__}" in text_of(call.result or ())


async def test_a_turn_that_is_canceled_from_outside_is_canceled() -> None:
    began = asyncio.Event()

    class Hanging(RaisingTools):
        async def call(self, call: ToolCall) -> ToolOutcome:
            began.set()
            await asyncio.Event().wait()
            raise self._error

    async def play() -> None:
        with Interruption() as interruption:
            turn = Turn(Model(), Hanging(Panic()), EngineOptions(), TurnListener(), interruption)
            await turn.play("hi", provider="p")

    task = asyncio.create_task(play())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
