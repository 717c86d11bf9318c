"""Exceptions that no code expected: they end the attempt at once, requeue its run once, and fail it the second time."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import EngineOptions, EngineResult, StepRecord, ToolCall, TrustLevel
from nova_workers.contracts.listener import TurnListener
from nova_workers.domain.runs.rules import attempts
from nova_workers.domain.runs.rules.attempts import RunReports
from nova_workers.domain.runs.rules.turns.assembly import TurnAssembler
from nova_workers.domain.runs.rules.turns.live import LiveEvents
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time
from tests.support.harness.logs import recorded_logs
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

WELL = Message("assistant", (text_block("Well."),))
SECRET = "hunter2-and-more"


@pytest.fixture(autouse=True)
def lines() -> Iterator[io.StringIO]:
    """What the worker logs, as JSON: the console's tracebacks with their variables take seconds."""
    with recorded_logs() as lines:
        yield lines


Act = Callable[[TurnListener], Awaitable[None]]


class Defective:
    """An engine that does something wrong in its first turns, before it answers."""

    name = "defective"

    def __init__(self, act: Act, *, times: int = 2) -> None:
        self._act = act
        self._times = times
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
        if self.turns <= self._times:
            await self._act(callbacks)
        await callbacks.on_step(StepRecord(len(options.journal), (WELL,), final=True))
        return EngineResult(text="Well.", stop_reason="end_turn", messages=(WELL,))

    async def close(self) -> None: ...


def raising(error: BaseException) -> Act:
    async def act(_: TurnListener) -> None:
        raise error

    return act


class Panic(BaseException):
    """As extensions in Rust raise it."""


async def _type_error(_: TurnListener) -> None:
    given: Any = [SECRET]
    "".join([given])


async def _recursion(listener: TurnListener) -> None:
    await _recursion(listener)


async def _text_that_is_no_text(listener: TurnListener) -> None:
    given: Any = [{"type": "text", "text": "fine"}]
    listener.on_token(given)


async def _a_step_that_cannot_be_committed(listener: TurnListener) -> None:
    given: Any = "not messages"
    await listener.on_step(StepRecord(0, given))


async def _a_call_without_a_step(listener: TurnListener) -> None:
    await listener.on_tool_result(ToolCall("c", "f", {}, step=7, sequence=0), "")


DEFECTS: dict[str, tuple[Act, str]] = {
    "a wrong type": (_type_error, "TypeError at tests.integration.runs.protocol.test_engine_errors:"),
    "no memory": (raising(MemoryError()), "MemoryError at "),
    "endless recursion": (_recursion, "RecursionError at "),
    "a stray cancellation": (raising(asyncio.CancelledError()), "CancelledError at "),
    "an exit": (raising(SystemExit(3)), "SystemExit at "),
    "a panic": (raising(Panic()), "Panic at "),
    "a group": (raising(BaseExceptionGroup("", [KeyError(SECRET)])), "KeyError"),
    "a time-out": (raising(TimeoutError()), "TimeoutError at "),
    "text that is no text": (_text_that_is_no_text, " at "),
    "a step of another form": (_a_step_that_cannot_be_committed, " at "),
    "a call of no step": (_a_call_without_a_step, "KeyError at nova_workers.domain.runs.rules.turns.journal:"),
}


async def _defective(harness: Harness, act: Act, *, times: int = 2) -> tuple[Defective, str]:
    engine = Defective(act, times=times)
    harness.engines["defective"] = engine
    await harness.add_agent("defective", {"name": "Defective", "engine": "defective"})
    return engine, (await harness.submit("go", agent_id="defective")).run_id


async def _attempts(harness: Harness, run_id: str) -> list[str]:
    rows = await harness.database.fetch(
        "SELECT ended FROM run_attempts WHERE run_id = :run_id ORDER BY attempt", run_id=run_id
    )
    return [row["ended"] for row in rows]


async def _assert_failed_after_one_retry(harness: Harness, run_id: str) -> str:
    row = await harness.run(run_id)
    found = (row["status"], row["error_kind"], row["error_retryable"], row["attempt"], row["losses"])
    assert found == ("failed", "engine_error", False, 2, 0)
    assert await _attempts(harness, run_id) == ["engine_error"]
    await check_any_time(harness.database)
    return row["error_message"]


@pytest.mark.parametrize("form", list(DEFECTS))
@proves("engine.errors-are-values")
async def test_an_unexpected_exception_ends_the_attempt_at_once_and_is_retried_once(
    harness: Harness, form: str, lines: io.StringIO
):
    act, place = DEFECTS[form]
    engine, run_id = await _defective(harness, act)
    await harness.settle(worker := harness.worker())
    message = await _assert_failed_after_one_retry(harness, run_id)
    assert place in message
    assert SECRET not in message
    assert engine.turns == 2
    logged = [line for line in map(json.loads, lines.getvalue().splitlines()) if line["event"] == "run.engine_error"]
    assert [place in line["place"] for line in logged] == [True, True]
    assert "Traceback" in json.dumps(logged[0]) or "exception" in logged[0]
    after = await harness.submit("and now?", (await harness.run(run_id))["thread_id"])
    await harness.settle(worker)
    assert (await harness.run(after.run_id))["result_text"] == "Well."


@proves("engine.errors-are-values")
async def test_a_defect_that_passes_costs_an_attempt(harness: Harness):
    engine, run_id = await _defective(harness, _type_error, times=1)
    await harness.settle(harness.worker())
    row = await harness.run(run_id)
    assert (row["status"], row["result_text"], row["attempt"], engine.turns) == ("succeeded", "Well.", 2, 2)
    assert await _attempts(harness, run_id) == ["engine_error"]


async def test_the_retry_is_counted_over_the_death_of_its_worker(harness: Harness):
    script = '{"script": [{"say": "First.", "tool": {"name": "a"}}, {"crash": "raise"}]}'
    first, second, third = harness.worker(), harness.worker(), harness.worker()
    run = await harness.submit(script, await harness.thread("scripted"))
    first.faults.plan("crash_after", "requeue_once")
    await (await harness.start_next(first))
    await first.crash()
    assert (await harness.run(run.run_id))["status"] == "queued"
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    second.faults.plan("crash_before", "finish")
    await (await harness.start_next(second))
    await second.crash()
    await harness.recover()
    await harness.settle(third)
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_kind"], row["attempt"], row["losses"]) == ("failed", "engine_error", 3, 1)
    assert await _attempts(harness, run.run_id) == ["engine_error", "lost"]
    assert row["result_text"] == "First."
    kinds = [message["kind"] for message in await harness.transcript(run.run_id)]
    assert kinds == ["query", "response", "tool_results"]


@pytest.mark.parametrize(
    "error",
    [Unavailable("The database did not answer.", server="postgres"), RedisConnectionError("refused")],
    ids=["postgres", "redis"],
)
async def test_an_outage_within_a_turn_is_no_defect(
    harness: Harness, error: Exception, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attempts, "_AFTER_OUTAGE_S", 0)
    _, run_id = await _defective(harness, raising(error), times=3)
    await harness.settle(harness.worker())
    row = await harness.run(run_id)
    assert (row["status"], row["attempt"], row["losses"]) == ("succeeded", 4, 0)
    assert await _attempts(harness, run_id) == ["requeued"] * 3


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (RunReports, "claimed"),
        (TurnAssembler, "engine"),
        (TurnAssembler, "options"),
        (attempts, "_tool_policy"),
        (attempts, "ended_before_start"),
    ],
)
async def test_an_exception_around_the_turn_is_one_too(
    harness: Harness, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(owner, name, _fail)
    run = await harness.submit("hello")
    await harness.settle(harness.worker())
    assert "ZeroDivisionError at " in await _assert_failed_after_one_retry(harness, run.run_id)


async def test_an_exception_after_the_end_is_committed_changes_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LiveEvents, "finished", _fail)
    thread_id = await harness.thread()
    first = await harness.submit("hello", thread_id)
    second = await harness.submit("and on", thread_id)
    await harness.settle(harness.worker())
    for run in (first, second):
        row = await harness.run(run.run_id)
        assert (row["status"], row["attempt"]) == ("succeeded", 1)


async def test_an_exception_while_a_run_is_suspended_leaves_its_call_interrupted(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attempts, "new_waits", _fail)
    run = await harness.submit(plan(["ask:color"]))
    await harness.settle(harness.worker())
    assert "ZeroDivisionError at " in await _assert_failed_after_one_retry(harness, run.run_id)
    calls = await harness.database.fetch("SELECT status FROM tool_calls ORDER BY sequence")
    assert [call["status"] for call in calls] == ["interrupted"]


async def test_a_defect_of_one_run_costs_the_others_no_events(harness: Harness):
    engine, run_id = await _defective(harness, _text_that_is_no_text)
    others = [await harness.submit("hello") for _ in range(3)]
    await harness.settle(worker := harness.worker())
    await worker.publisher.drain(5.0)
    for run in others:
        entries: Any = await harness.redis.xrange(f"nova:run:{run.run_id}:events")
        assert b"stream_end" in entries[-1][1][b"p"]
    assert engine.turns == 2
    await _assert_failed_after_one_retry(harness, run_id)
