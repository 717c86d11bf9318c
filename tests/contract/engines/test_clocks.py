"""Two clocks: the time that a turn waits for its model, and the time of each tool."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.engines.stage import Answer, Bench, Call, Stage, TurnRecorder, assert_valid
from tests.support.waiting import pass_time, stays, until

# An engine that starts a program for each turn needs longer limits than a test has; it has tests of its own.
pytestmark = pytest.mark.parametrize("stage", ["scripted", "anthropic"], indirect=True)

HANGS = Answer("I look.", calls=(Call("hang"),))
DONE = Answer("Done.")


async def test_a_turn_that_waits_too_long_for_its_model_ends_as_timeout(stage: Stage, recorder: TurnRecorder) -> None:
    options = stage.options([Answer("So far", stalls=True)], reasoning_timeout_s=60)
    running = asyncio.create_task(stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks()))
    await until(lambda: "".join(recorder.tokens) == "So far")
    await pass_time(61)
    result = await running
    assert (result.stop_reason, result.text) == ("timeout", "So far")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("timeout", True)
    assert "waited for the model" in result.error.message


async def test_the_waits_of_all_steps_add_up(stage: Stage, bench: Bench) -> None:
    step = Answer("Again.", wait_s=25, calls=(Call("count"),))
    options = stage.options([step, step, step, DONE], reasoning_timeout_s=60, mcp_servers=bench.servers())
    running = asyncio.create_task(stage.engine.run("hi", options, "sandbox"))
    while not running.done():
        await pass_time(1)
    result = await running
    assert result.stop_reason == "timeout"
    # No single wait was too long.
    assert bench.runs in (["count"], ["count", "count"])
    assert_valid(result.messages)


async def test_the_time_of_tools_is_not_the_models(stage: Stage, bench: Bench) -> None:
    options = stage.options([HANGS, DONE], reasoning_timeout_s=60, mcp_servers=bench.servers())
    running = asyncio.create_task(stage.engine.run("hi", options, "sandbox"))
    await asyncio.wait_for(bench.began.wait(), 60)
    await pass_time(300)
    await stays(lambda: not running.done(), for_s=0.1)
    bench.release.set()
    result = await asyncio.wait_for(running, 60)
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")


async def test_a_tool_that_takes_too_long_is_stopped_and_the_model_gets_an_error(
    stage: Stage, bench: Bench, recorder: TurnRecorder
) -> None:
    options = stage.options([HANGS, DONE], tool_timeout_s=0.2, mcp_servers=bench.servers())
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks()), 60)
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")
    assert bench.canceled.is_set()
    call = result.tool_calls[0]
    assert call.status == "failed"
    assert call.error == "hang was stopped after 0.2 s. Whether it had an effect is not known."
    assert_valid(result.messages)


async def test_a_slow_tool_does_not_stop_the_others_of_its_step(
    stage: Stage, bench: Bench, recorder: TurnRecorder
) -> None:
    both = Answer("", calls=(Call("hang"), Call("add", {"a": 1, "b": 2})))
    options = stage.options([both, DONE], tool_timeout_s=60, mcp_servers=bench.servers())
    running = asyncio.create_task(stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks()))
    await until(lambda: bench.began.is_set() and [call.tool_name for call in recorder.results] == ["add"])
    await pass_time(61)
    result = await asyncio.wait_for(running, 60)
    assert [call.status for call in result.tool_calls] == ["failed", "completed"]
