"""An undisturbed turn of every engine."""

import asyncio
import json

import pytest

from nova_workers.contracts.content import Message, text_block, text_of
from nova_workers.contracts.engine import EngineCallbacks, TrustLevel
from nova_workers.engines.turn import loop
from tests.contract.engines.stage import Answer, Bench, Call, Stage, TurnRecorder, WireStage, assert_valid
from tests.requirements import proves
from tests.support.harness.planned_allowance import PlannedAllowance


async def test_an_answer_streams_and_ends_the_turn(stage: Stage, recorder: TurnRecorder) -> None:
    options = stage.options([Answer("Hello dear world")])
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.text == "Hello dear world"
    assert result.stop_reason == "end_turn"
    assert "".join(recorder.tokens) == "Hello dear world"
    assert len(recorder.tokens) == 3
    assert result.messages == (Message("assistant", (text_block("Hello dear world"),)),)
    assert result.error is None
    assert result.provider == stage.engine.name


async def test_a_turn_needs_no_callbacks(stage: Stage, bench: Bench) -> None:
    options = stage.options(
        [Answer("a", calls=(Call("add", {"a": 1, "b": 2}),)), Answer("b")], mcp_servers=bench.servers()
    )
    result = await stage.engine.run((text_block("hi"),), options, "sandbox")
    assert result.text == "b"
    assert_valid(result.messages)


async def test_reasoning_streams_separately_from_the_answer(stage: Stage, recorder: TurnRecorder) -> None:
    options = stage.options([Answer("Yes", think="Hmm")])
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert ("reasoning", "Hmm") in recorder.log
    assert result.text == "Yes"
    assert [block["type"] for block in result.messages[0].content] == ["thinking", "text"]


async def test_callbacks_come_in_order(
    stage: Stage, recorder: TurnRecorder, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine would be announced as a slow model, which has a test of its own.
    monkeypatch.setattr(loop, "THINKING_DELAY_S", 60)
    answers = [Answer("Let me see", calls=(Call("add", {"a": 1, "b": 2}),)), Answer("Three")]
    options = stage.options(answers, mcp_servers=bench.servers())
    await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert recorder.log == [
        "thinking",
        "tokens",
        ("event", "assistant_text"),
        ("narration", "Let me see"),
        ("authorize", "add"),
        "calls",
        ("tool", "add"),
        ("event", "tool_use"),
        ("result", "add", "completed"),
        "summary",
        ("step", 0, False),
        "steering",
        "tokens",
        ("event", "assistant_text"),
        ("step", 1, True),
        ("event", "result"),
    ]


async def test_waiting_for_a_slow_model_after_tools_is_announced(
    stage: Stage, recorder: TurnRecorder, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "THINKING_DELAY_S", 0.1)
    answers = [Answer(calls=(Call("add", {"a": 1, "b": 2}),)), Answer("Three", wait_s=0.8)]
    options = stage.options(answers, mcp_servers=bench.servers())
    await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert recorder.log.count("thinking") == 2
    assert recorder.log.index("tokens") > recorder.log.index("steering")


async def test_a_tool_is_called_and_its_result_is_sent_back(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    answers = [Answer(calls=(Call("add", {"a": 1, "b": 2}),)), Answer("Three")]
    options = stage.options(answers, mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    (call,) = result.tool_calls
    assert (call.id, call.tool_name, call.params) == (stage.call_id(0, 0), "add", {"a": 1, "b": 2})
    assert (call.status, call.result, call.step, call.sequence) == ("completed", (text_block("3"),), 0, 0)
    assert call.idempotent
    assert call.started_at is not None
    assert call.completed_at is not None
    assert call.started_at <= call.completed_at
    assert_valid(result.messages)
    assert [message.role for message in result.messages] == ["assistant", "user", "assistant"]


async def test_calls_are_committed_before_the_first_of_them_runs(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    answers = [Answer("x", calls=(Call("count"), Call("add", {"a": 1, "b": 1}))), Answer("y")]
    options = stage.options(answers, mcp_servers=bench.servers())
    await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    (before,) = recorder.before_tools
    assert not before.complete
    assert [message.role for message in before.messages] == ["assistant"]
    assert [(call.status, call.result) for call in before.tool_calls] == [("pending", None)] * 2
    after = recorder.records[0]
    assert after.complete
    assert after.messages[0] == before.messages[0]
    assert [call.status for call in after.tool_calls] == ["completed"] * 2


async def test_calls_of_one_step_run_concurrently(stage: Stage, bench: Bench) -> None:
    options = stage.options([Answer(calls=(Call("meet"), Call("meet"))), Answer("ok")], mcp_servers=bench.servers())
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox"), 60)
    assert [call.result for call in result.tool_calls] == [(text_block("met"),)] * 2


async def test_a_result_is_committed_before_the_others_of_its_step_end(stage: Stage, bench: Bench) -> None:
    async def on_tool_result(call: object, _: str) -> None:
        bench.release.set()

    answers = [Answer(calls=(Call("hang"), Call("add", {"a": 1, "b": 1}))), Answer("ok")]
    options = stage.options(answers, mcp_servers=bench.servers())
    callbacks = EngineCallbacks(on_tool_result=on_tool_result)
    result = await asyncio.wait_for(stage.engine.run("hi", options, "sandbox", callbacks=callbacks), 60)
    assert [call.status for call in result.tool_calls] == ["completed", "completed"]


@pytest.mark.parametrize(("tool", "said"), [("break", "it broke"), ("raise", "raise failed")])
async def test_a_failing_tool_is_an_error_for_the_model_and_the_turn_continues(
    stage: Stage, bench: Bench, tool: str, said: str
) -> None:
    options = stage.options([Answer(calls=(Call(tool),)), Answer("Pity")], mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox")
    (call,) = result.tool_calls
    assert call.status == "failed"
    assert said in text_of(call.result or ())
    assert result.messages[1].content[0]["is_error"] is True
    assert (result.text, result.stop_reason) == ("Pity", "end_turn")


async def test_a_refused_call_does_not_run_and_the_model_gets_the_reason(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    recorder.refuse = {"count": "Not on Sundays"}
    options = stage.options([Answer(calls=(Call("count"),)), Answer("Pity")], mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert bench.runs == []
    assert ("tool", "count") not in recorder.log
    assert result.messages[1].content[0]["content"] == [
        text_block("Not on Sundays. This call was not permitted, and did not begin.")
    ]
    assert recorder.before_tools[0].tool_calls[0].status == "failed"
    assert result.tool_calls[0].status == "failed"
    assert ("result", "count", "failed") in recorder.log


async def test_steering_joins_at_the_step_boundary(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    joined = Message("user", (text_block("and be brief"),))
    recorder.steering = [(joined,)]
    answers = [Answer(calls=(Call("count"),)), Answer("Well", calls=(Call("count"),)), Answer("Ok")]
    options = stage.options(answers, mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.messages.index(joined) == 2
    assert_valid(result.messages)
    assert result.text == "Ok"
    if stage.engine.name == "scripted":
        assert text_of(recorder.records[1].messages[0].content) == "(steered: and be brief) Well"


async def test_a_stop_verdict_ends_the_turn_at_the_boundary(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    recorder.verdicts = ["stop"]
    options = stage.options([Answer("a", calls=(Call("count"),)), Answer("never")], mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.stop_reason == "tool_use"
    assert result.text == "a"
    assert not recorder.records[0].final
    assert "steering" not in recorder.log
    assert_valid(result.messages)


async def test_max_turns_bounds_model_calls_and_leaves_a_valid_transcript(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    answers = [Answer(calls=(Call("count"),)), Answer(calls=(Call("count"),)), Answer("never")]
    options = stage.options(answers, mcp_servers=bench.servers(), max_turns=2)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.stop_reason == "tool_use"
    assert result.usage.turns == 2
    assert bench.runs == ["count", "count"]
    assert [record.final for record in recorder.records] == [False, True]
    assert_valid(result.messages)


@proves("budgets.reserved")
async def test_usage_adds_up_over_steps(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    allowance = PlannedAllowance(10**6, 10**6)
    options = stage.options(
        [Answer("a", calls=(Call("count"),)), Answer("b")], mcp_servers=bench.servers(), allowance=allowance
    )
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    first, second = (record.usage for record in recorder.records)
    assert result.usage.tokens == first + second
    assert result.usage.turns == 2
    assert first.input_tokens > 0
    assert first.output_tokens > 0
    assert result.usage.duration_ms >= 0
    if stage.engine.name == "scripted":
        # A script reserves the usage that it states.
        return
    for bound, reserved, used in zip(allowance.bounds, allowance.reserved, (first, second), strict=True):
        assert reserved.used == [used]
        assert bound.input_tokens >= used.total_tokens - used.output_tokens
        assert bound.output_tokens >= used.output_tokens
        assert (bound.price is None) == (used.cost_usd is None)
        assert used.cost_usd is None or bound.price is None or bound.price.output_usd > 0


@pytest.mark.parametrize("trust", ["sandbox", "controlled", "unrestricted"])
async def test_mcp_tools_work_at_every_trust_level(stage: Stage, bench: Bench, trust: TrustLevel) -> None:
    options = stage.options([Answer(calls=(Call("count"),)), Answer("b")], mcp_servers=bench.servers())
    await stage.engine.run("hi", options, trust)
    assert bench.runs == ["count"]


async def test_a_result_names_the_tools_that_the_model_was_offered(stage: Stage, bench: Bench) -> None:
    options = stage.options([Answer(calls=(Call("count"),)), Answer("b")], mcp_servers=bench.servers())
    result = await stage.engine.run("hi", options, "sandbox")
    assert result.tools_available is not None
    assert "count" in result.tools_available
    assert "Bash" not in result.tools_available


async def test_a_session_that_cannot_be_resumed_becomes_a_new_conversation(stage: Stage) -> None:
    result = await stage.engine.run("hi", stage.options([Answer("hello")]), "sandbox", session_id="gone")
    assert result.text == "hello"
    assert result.session_id != "gone"


@proves("threads.imported")
async def test_a_conversation_from_elsewhere_continues(stage: Stage, recorder: TurnRecorder) -> None:
    call = {"type": "tool_use", "id": "call-1_x", "name": "look_elsewhere", "input": {"at": [1]}}
    failed = {"type": "tool_result", "tool_use_id": "call-1_x", "content": "", "is_error": True}
    history = (
        Message("user", (text_block("badger"),)),
        Message("user", (text_block("otter"),)),
        Message("assistant", (text_block("lynx"), call)),
        Message("user", (failed,)),
        Message("user", (text_block("marten"),)),
        Message("assistant", (text_block("stoat"),)),
        Message("assistant", (text_block("weasel"),)),
    )
    options = stage.options([Answer("Fine")], history=history)
    result = await stage.engine.run("and now?", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.text, result.error) == ("Fine", None)
    if isinstance(stage, WireStage):
        sent = json.dumps(stage.server.requests[-1])
        places = [sent.find(word) for word in ("badger", "otter", "lynx", "marten", "stoat", "weasel", "and now?")]
        assert places == sorted(places)
        assert places[0] > 0
