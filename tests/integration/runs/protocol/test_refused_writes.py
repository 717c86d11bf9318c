"""The database refuses what a turn produced: the run ends with a clear error, is counted, and its thread continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    EngineOptions,
    EngineResult,
    StepRecord,
    ToolCall,
    TrustLevel,
)
from nova_workers.contracts.listener import TurnListener
from nova_workers.contracts.usage import TokenUsage
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness

USAGE = TokenUsage(input_tokens=10, output_tokens=3, cost_usd=0.25)


def _call(call_id: str, params: JsonObject) -> ToolCall:
    return ToolCall(call_id, "f", params, step=0, sequence=0)


def _step(*calls: ToolCall, model: str = "m", final: bool = False) -> StepRecord:
    uses = [{"type": "tool_use", "id": call.id, "name": "f", "input": call.params} for call in calls]
    messages = [Message("assistant", (text_block("Let me see."), *uses))]
    if calls:
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "x"} for call in calls]
        messages.append(Message("user", tuple(results)))
    return StepRecord(0, tuple(messages), calls, USAGE, model, final=final)


class EngineWithoutTurnLoop:
    """An engine without the shared turn, which hands over its first response as it is."""

    name = "careless"

    def __init__(self, step: StepRecord) -> None:
        self.step = step
        self.turns = 0

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        assert callbacks is not None
        self.turns += 1
        if options.history:
            await _report(callbacks, StepRecord(0, (Message("assistant", (text_block("Well."),)),), final=True))
            return EngineResult(text="Well.", stop_reason="end_turn")
        await _report(callbacks, self.step)
        return EngineResult(text="So.", stop_reason="end_turn", model=self.step.model)

    async def close(self) -> None: ...


async def _report(callbacks: TurnListener, step: StepRecord) -> None:
    if step.tool_calls:
        await callbacks.on_tool_calls(step)
    await callbacks.on_step(step)


UNSTORABLE: dict[str, Callable[[], StepRecord]] = {
    "an input that is no JSON": lambda: _step(_call("a", {"x": object()})),
    "two calls with one id": lambda: _step(_call("a", {}), _call("a", {})),
    "a model's name with NUL": lambda: _step(_call("a", {}), model="m\x00"),
    "a last response with a bad name": lambda: _step(model="m\x00", final=True),
}


@pytest.mark.parametrize("form", list(UNSTORABLE))
@proves("finish.unstorable")
async def test_a_write_that_the_database_refuses_ends_the_run_once(harness: Harness, form: str):
    engine = EngineWithoutTurnLoop(UNSTORABLE[form]())
    harness.engines["careless"] = engine
    await harness.add_agent("careless", {"name": "Careless", "engine": "careless"})
    worker = harness.worker()
    run = await harness.submit("go", agent_id="careless")
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_retryable"], row["attempt"], engine.turns) == ("failed", False, 1, 1)
    assert "cannot store" in row["error_message"]
    used = await harness.database.fetchrow(
        "SELECT input_tokens, cost_usd FROM usage WHERE run_id = :run_id", run_id=run.run_id
    )
    assert used is not None
    assert (used["input_tokens"], float(used["cost_usd"])) == (10, 0.25)
    after = await harness.submit("and now?", run.thread_id)
    await harness.settle(worker)
    assert (await harness.run(after.run_id))["result_text"] == "Well."
    await check_any_time(harness.database)


async def test_absurdly_large_counts_do_not_stop_a_run(harness: Harness):
    step = StepRecord(0, (Message("assistant", (text_block("Hi."),)),), usage=TokenUsage(2**70, -5), final=True)
    harness.engines["careless"] = EngineWithoutTurnLoop(step)
    await harness.add_agent("careless", {"name": "Careless", "engine": "careless"})
    run = await harness.submit("go", agent_id="careless")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"
    used = await harness.database.fetchrow(
        "SELECT input_tokens, output_tokens FROM usage WHERE run_id = :run_id", run_id=run.run_id
    )
    assert used is not None
    assert tuple(used) == (500_000_000, 0)
