"""Every engine continues a journal after the last committed step, and does nothing twice."""

from dataclasses import replace

import pytest

from nova_workers.contracts.content import Message, text_block, text_of
from nova_workers.contracts.engine import StepRecord, ToolCallStatus
from tests.contract.engines.stage import Answer, Bench, Call, Stage, TurnRecorder, WireStage, assert_valid

ANSWERS = [
    Answer("First", calls=(Call("count"), Call("add", {"a": 1, "b": 2}))),
    Answer("Second", calls=(Call("count"),)),
    Answer("Third"),
]


async def _whole_turn(stage: Stage) -> tuple[list[StepRecord], tuple[Message, ...]]:
    recorder = TurnRecorder()
    options = stage.options(ANSWERS, mcp_servers=Bench().servers())
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    return recorder.records, result.messages


@pytest.mark.parametrize("committed", [1, 2])
async def test_a_turn_continues_after_the_last_committed_step(
    stage: Stage, recorder: TurnRecorder, bench: Bench, committed: int
) -> None:
    records, messages = await _whole_turn(stage)
    journal = tuple(records[:committed])
    options = stage.options(ANSWERS, mcp_servers=bench.servers(), journal=journal)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert result.text == "Third"
    assert [record.index for record in recorder.records] == list(range(committed, 3))
    assert bench.runs == ["count"] * (2 - committed)
    before = tuple(message for record in journal for message in record.messages)
    assert_valid(before + result.messages)
    assert len(before + result.messages) == len(messages)
    assert result.usage.turns == 3 - committed
    if isinstance(stage, WireStage):
        roles = [role for role, _ in stage.server.conversation()]
        assert roles == ["user", "assistant", "user", "assistant", "user"]


async def test_a_resumed_turn_keeps_counting_steps_and_calls(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    records, _ = await _whole_turn(stage)
    options = stage.options(ANSWERS, mcp_servers=bench.servers(), journal=tuple(records[:1]))
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert [(call.step, call.sequence, call.id) for call in result.tool_calls] == [(1, 2, stage.call_id(1, 0))]


@pytest.mark.parametrize(
    ("status", "tool", "runs", "ends"),
    [
        ("completed", "count", 0, "completed"),
        ("failed", "count", 0, "failed"),
        ("pending", "count", 0, "interrupted"),
        ("running", "count", 0, "interrupted"),
        ("pending", "add", 1, "completed"),
        ("running", "add", 1, "completed"),
    ],
)
async def test_a_call_in_flight_is_interrupted_unless_it_is_idempotent(
    stage: Stage,
    recorder: TurnRecorder,
    bench: Bench,
    status: ToolCallStatus,
    tool: str,
    runs: int,
    ends: ToolCallStatus,
) -> None:
    answers = [Answer("First", calls=(Call(tool, {"a": 1, "b": 2}), Call("count"))), Answer("Second")]
    await stage.engine.run(
        "hi", stage.options(answers, mcp_servers=Bench().servers()), "sandbox", callbacks=recorder.callbacks()
    )
    before = recorder.before_tools[0]
    ended = status in ("completed", "failed")
    first = replace(before.tool_calls[0], status=status, result=(text_block("kept"),) if ended else None)
    # The ledger does not keep what a tool declares: the engine asks the tool again.
    second = replace(before.tool_calls[1], status="completed", result=(text_block("done"),), idempotent=False)
    journal = (replace(before, tool_calls=(replace(first, idempotent=False), second)),)

    again = TurnRecorder()
    options = stage.options(answers, mcp_servers=bench.servers(), journal=journal)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=again.callbacks())
    assert len(bench.runs) == runs
    record = again.records[0]
    assert (record.index, record.complete, record.final) == (0, True, False)
    assert [call.status for call in record.tool_calls] == [ends, "completed"]
    assert record.messages[0] == before.messages[0]
    assert_valid(record.messages)
    if ends == "interrupted":
        assert "interrupted" in text_of(record.tool_calls[0].result or ())
    if not ended:
        assert [call.status for call in again.results] == [ends]
    assert "calls" not in again.log
    assert result.text == "Second"
    assert result.messages == (record.messages[1], Message("assistant", (text_block("Second"),)))


async def test_max_turns_counts_the_steps_of_the_journal(stage: Stage, recorder: TurnRecorder, bench: Bench) -> None:
    records, _ = await _whole_turn(stage)
    options = stage.options(ANSWERS, mcp_servers=bench.servers(), journal=tuple(records[:2]), max_turns=2)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.stop_reason, result.text, result.usage.turns) == ("tool_use", "Second", 0)
    assert recorder.records == []


async def test_steering_that_was_committed_is_not_lost_by_a_crash(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    records, _ = await _whole_turn(stage)
    joined = Message("user", (text_block("be brief"),))
    journal = (replace(records[0], messages=(*records[0].messages, joined)),)
    options = stage.options(ANSWERS, mcp_servers=bench.servers(), journal=journal)
    await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    if isinstance(stage, WireStage):
        said = [text for role, text in stage.server.conversation(-2) if role == "user"]
        assert said[-1].endswith("be brief")
    else:
        assert text_of(recorder.records[0].messages[0].content) == "(steered: be brief) Second"


async def test_a_journal_that_ended_the_turn_is_only_read(stage: Stage, recorder: TurnRecorder) -> None:
    records, _ = await _whole_turn(stage)
    options = stage.options(ANSWERS, journal=tuple(records))
    result = await stage.engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.stop_reason, result.text, recorder.records) == ("end_turn", "Third", [])
