"""Every engine stops a turn cleanly: aborts, deadlines, lost leases, failures."""

import asyncio
import json
from typing import Any

import pytest

from nova_workers.base.errors import RunLost
from nova_workers.contracts.abort import AbortReason, AbortSignal
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineCallbacks
from tests.contract.engines.stage import Answer, Bench, Call, Stage, TurnRecorder, WireStage, assert_valid


async def test_an_abort_in_mid_token_keeps_the_text_so_far(stage: Stage, recorder: TurnRecorder) -> None:
    abort = AbortSignal()

    def on_token(text: str) -> None:
        recorder.tokens.append(text)
        if len(recorder.tokens) == 2:
            asyncio.get_running_loop().call_soon(abort.abort, "cancel")

    options = stage.options([Answer("One two", stalls=True)])
    callbacks = recorder.callbacks(on_token=on_token)
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort), 60)
    assert result.stop_reason == "aborted"
    assert result.text == "One two"
    assert result.messages == (Message("assistant", (text_block("One two"),)),)
    assert recorder.records[-1].final
    assert recorder.records[-1].messages == result.messages
    if isinstance(stage, WireStage):
        # The provider sees that the client disconnected.
        await asyncio.wait_for(stage.server.left.wait(), 60)


async def test_an_abort_from_within_a_callback_stops_at_that_token(stage: Stage) -> None:
    abort = AbortSignal()
    tokens: list[str] = []

    def on_token(text: str) -> None:
        tokens.append(text)
        abort.abort("cancel")

    options = stage.options([Answer("One two three")])
    callbacks = EngineCallbacks(on_token=on_token)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort)
    assert (result.stop_reason, [token.strip() for token in tokens]) == ("aborted", ["One"])


@pytest.mark.parametrize("reason", ["cancel", "interrupt", "drain", "lost"])
async def test_an_abort_before_the_start_calls_no_model(
    stage: Stage, recorder: TurnRecorder, reason: AbortReason
) -> None:
    abort = AbortSignal()
    abort.abort(reason)
    options = stage.options([Answer("never")])
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks(), abort=abort)
    assert (result.stop_reason, result.text, result.messages) == ("aborted", "", ())
    assert (recorder.tokens, recorder.records) == ([], [])
    assert result.usage.turns == 0


async def test_an_abort_in_mid_tool_cancels_it_and_gives_every_call_a_result(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    abort = AbortSignal()

    async def on_tool_result(call: Any, _: str) -> None:
        recorder.results.append(call)
        await bench.began.wait()
        abort.abort("cancel")

    answers = [Answer("Look", calls=(Call("hang"), Call("add", {"a": 1, "b": 1}))), Answer("never")]
    options = stage.options(answers, mcp_servers=bench.servers())
    callbacks = recorder.callbacks(on_tool_result=on_tool_result)
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort), 60)
    assert bench.canceled.is_set()
    assert result.stop_reason == "aborted"
    assert result.text == "Look"
    assert [call.status for call in result.tool_calls] == ["interrupted", "completed"]
    assert_valid(result.messages)
    (record,) = recorder.records
    assert record.final
    assert record.complete
    assert record.messages == result.messages
    # Interrupted calls are only in the record: after a drain the journal must still show them in flight.
    assert [call.tool_name for call in recorder.results] == ["add"]


async def test_a_call_that_ends_while_the_turn_is_being_stopped_keeps_its_result(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    abort = AbortSignal()

    async def on_tool_result(call: Any, _: str) -> None:
        await bench.began.wait()
        abort.abort("cancel")
        bench.release.set()
        # The commit of this call takes a while, in which the other one ends.
        await asyncio.sleep(0.01)

    answers = [Answer(calls=(Call("hang"), Call("add", {"a": 1, "b": 1}))), Answer("never")]
    options = stage.options(answers, mcp_servers=bench.servers())
    callbacks = recorder.callbacks(on_tool_result=on_tool_result)
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort), 60)
    assert result.stop_reason == "aborted"
    assert [call.result for call in result.tool_calls] == [(text_block("released"),), (text_block("2"),)]
    assert not bench.canceled.is_set()


async def test_an_abort_during_a_commit_lets_the_commit_end(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    abort = AbortSignal()
    committed: list[str] = []

    async def on_tool_calls(_: Any) -> None:
        abort.abort("cancel")
        await asyncio.sleep(0.01)
        committed.append("calls")

    options = stage.options([Answer(calls=(Call("count"),))], mcp_servers=bench.servers())
    callbacks = recorder.callbacks(on_tool_calls=on_tool_calls)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort)
    assert committed == ["calls"]
    assert bench.runs == []
    assert result.stop_reason == "aborted"
    assert result.tool_calls[0].status == "interrupted"
    assert_valid(result.messages)


async def test_a_turn_that_takes_too_long_stops_with_timeout(stage: Stage, bench: Bench) -> None:
    options = stage.options(
        [Answer("a", calls=(Call("hang"),))], mcp_servers=bench.servers(), timeout_s=stage.begins_in_s
    )
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox"), 60)
    assert result.stop_reason == "timeout"
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("timeout", True)
    # On a busy machine the time may end before a program has started.
    assert bench.canceled.is_set() == bench.began.is_set()
    assert_valid(result.messages)


async def test_a_failure_of_the_model_is_a_value_and_keeps_the_text(stage: Stage, recorder: TurnRecorder) -> None:
    options = stage.options([Answer("So far", fails=True)])
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.stop_reason == "error"
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("model_error", True)
    # For an error in mid-stream the Claude Code program reports only that there was one, not the provider's message.
    assert ("mid-response" if stage.engine.name == "claude_agent" else "Overloaded") in result.error.message
    assert result.text == "So far"
    assert recorder.records[-1].final
    assert_valid(result.messages)


@pytest.mark.parametrize(
    "where", ["on_tool_calls", "on_tool_result", "on_step", "take_steering", "authorize_tool", "confirm_run"]
)
async def test_a_lost_run_stops_without_another_callback(
    stage: Stage, recorder: TurnRecorder, bench: Bench, where: str
) -> None:
    async def lost(*_: Any) -> Any:
        recorder.log.clear()
        raise RunLost("another worker has it")

    answers = [Answer("x", calls=(Call("add", {"a": 1, "b": 1}), Call("hang"))), Answer("never")]
    if where in ("on_step", "take_steering"):
        bench.release.set()
    options = stage.options(answers, mcp_servers=bench.servers())
    with pytest.raises(RunLost):
        await asyncio.wait_for(
            stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks(**{where: lost})), 10
        )
    assert recorder.log == []


async def test_a_canceled_task_is_canceled(stage: Stage, bench: Bench) -> None:
    options = stage.options([Answer(calls=(Call("hang"),))], mcp_servers=bench.servers())
    task = asyncio.create_task(stage.engine.run("hi", options, "sandbox", abort=AbortSignal()))
    await asyncio.wait_for(bench.began.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.canceled.is_set()


async def test_concurrent_turns_do_not_mix(stage: Stage) -> None:
    numbers = range(stage.at_once)
    if isinstance(stage, WireStage):
        options = stage.options([Answer("never")])
        for number in numbers:
            asked = f'"say {number}"'
            stage.server.reply_when(
                lambda _, request, asked=asked: asked in json.dumps(request.get("messages") or request["input"]),
                stage.reply(0, Answer(f"number {number}")),
            )
        turns = [stage.engine.run(f"say {number}", options, "sandbox") for number in numbers]
    else:
        turns = [
            stage.engine.run("hi", stage.options([Answer(f"number {number}", wait_s=0.05)]), "sandbox")
            for number in numbers
        ]
    assert [result.text for result in await asyncio.gather(*turns)] == [f"number {number}" for number in numbers]
