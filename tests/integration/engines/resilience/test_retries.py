"""A short failure of the provider or the network costs a pause and not the turn."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.engine import EngineCallbacks, StepRecord, StepVerdict
from nova_workers.engines.resilience import Policy
from tests.integration.engines.resilience.conftest import HASTY
from tests.integration.engines.resilience.stage import (
    BROKEN,
    FINE,
    OVERLOADED,
    CountingMetrics,
    MakeEngine,
    error_of,
    turn,
)
from tests.support.servers.model_server import Drop, ModelServer, Part, Reply, Status, Stream
from tests.support.waiting import pass_time, until

NO_BREAKER = replace(HASTY, breaker_failures=100)
MALFORMED = Part("raw", b"event: content_block_delta\ndata: {broken\n\n")
OUT_OF_ORDER = Part("event", ("content_block_delta", {"index": 7, "delta": {"type": "text_delta", "text": "x"}}))
IN_MID_STREAM = Part("event", ("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}}))
THE_TEXT = Part("text", ["So far", " so good"])
USED = {"input_tokens": 7, "output_tokens": 3}


class Reader:
    """The text that a reader of the stream sees."""

    def __init__(self) -> None:
        self.text = ""
        self.thoughts = ""
        self.restarts = 0

    def callbacks(self, **others: Any) -> EngineCallbacks:
        return EngineCallbacks(on_token=self._token, on_reasoning=self._think, on_restart=self._restart, **others)

    def _token(self, text: str) -> None:
        self.text += text

    def _think(self, text: str) -> None:
        self.thoughts += text

    def _restart(self) -> None:
        self.text = self.thoughts = ""
        self.restarts += 1


@pytest.mark.parametrize(
    "broken",
    [
        BROKEN,
        Status(502, "strange", "bad gateway"),
        Status(503, "strange", "not now"),
        Status(504, "timeout_error", "too slow"),
        OVERLOADED,
        Drop(),
        Stream((Part("cut"),)),
        Stream((Part("end"),)),
        Stream((MALFORMED,)),
        Stream((OUT_OF_ORDER,)),
        Stream((IN_MID_STREAM,)),
    ],
    ids=["500", "502", "503", "504", "529", "no word", "half-closed", "ends early", "malformed", "disorder", "event"],
)
async def test_a_failure_before_the_first_token_is_retried(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics, broken: Reply
) -> None:
    server.reply(broken, broken, FINE)
    reader = Reader()
    result = await turn(make(policy=NO_BREAKER), callbacks=reader.callbacks())
    assert (result.stop_reason, result.text, reader.text) == ("end_turn", "Well done", "Well done")
    assert (len(server.requests), reader.restarts) == (3, 0)
    assert counts.retries == [("claude-sonnet-5-5", "transport")] * 2


async def test_there_are_at_most_five_retries(server: ModelServer, make: MakeEngine) -> None:
    server.reply(BROKEN)
    error = error_of(await turn(make(policy=NO_BREAKER)))
    assert (error.kind, error.retryable, len(server.requests)) == ("model_error", True, 6)
    assert "broken" in error.message


async def test_a_refused_connection_is_retried(make: MakeEngine, counts: CountingMetrics) -> None:
    error = error_of(await turn(make(policy=NO_BREAKER, base_url="http://127.0.0.1:1")))
    assert (error.kind, error.retryable, len(counts.retries)) == ("model_error", True, 5)


async def test_a_response_that_does_not_begin_in_time_is_retried(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Stream((Part("stall"),)), FINE)
    running = asyncio.create_task(turn(make(policy=NO_BREAKER, request_timeout_s=20)))
    await until(lambda: len(server.requests) == 1)
    await pass_time(21)
    result = await running
    assert (result.text, len(server.requests)) == ("Well done", 2)


@pytest.mark.parametrize("status", [Status(400, "invalid_request_error", "no"), Status(413, "request_too_large", "no")])
async def test_permanent_failures_are_not_retried(server: ModelServer, make: MakeEngine, status: Status) -> None:
    server.reply(status)
    error_of(await turn(make("a", "b"), fallback_models=("claude-haiku-4-5",)))
    assert len(server.requests) == 1


async def test_a_refusal_is_not_retried_with_another_model(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Stream((THE_TEXT,), stop_reason="refusal"))
    error_of(await turn(make("a", "b"), fallback_models=("claude-haiku-4-5",)))
    assert len(server.requests) == 1


async def test_a_requested_delay_of_the_provider_is_respected(server: ModelServer, make: MakeEngine) -> None:
    patient = replace(NO_BREAKER, backoff_s=60.0, backoff_cap_s=60.0)
    server.reply(Status(529, "overloaded_error", "overloaded", headers={"retry-after-ms": "1"}), FINE)
    assert (await turn(make(policy=patient))).text == "Well done"


@pytest.mark.parametrize("broken", [Part("cut"), MALFORMED, IN_MID_STREAM, Part("end")])
async def test_streamed_text_becomes_void_before_a_retry_streams(
    server: ModelServer, make: MakeEngine, broken: Part
) -> None:
    thinking = Part("thinking", ["Hmm"])
    server.reply(Stream((thinking, THE_TEXT, broken)), Stream((Part("thinking", ["Aha"]), *FINE.parts)))
    reader = Reader()
    result = await turn(make(), callbacks=reader.callbacks())
    assert (result.text, reader.text, reader.thoughts, reader.restarts) == ("Well done", "Well done", "Aha", 1)
    assert [message.role for message in result.messages] == ["assistant"]


async def test_without_on_restart_the_turn_fails_with_its_partial_text(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Stream((THE_TEXT, Part("cut"))), FINE)
    tokens: list[str] = []
    result = await turn(
        make(), callbacks=EngineCallbacks(on_token=tokens.append), fallback_models=("claude-haiku-4-5",)
    )
    assert (error_of(result).retryable, result.text, "".join(tokens)) == (True, "So far so good", "So far so good")
    assert len(server.requests) == 1


@pytest.mark.parametrize("ends", [Stream(FINE.parts, usage=USED), Stream((THE_TEXT, Part("stall")), usage=USED)])
async def test_usage_of_an_interrupted_response_is_counted_beside_that_of_the_retry(
    server: ModelServer, make: MakeEngine, ends: Stream
) -> None:
    server.reply(Stream((THE_TEXT, Part("cut")), usage=USED), ends)
    records: list[StepRecord] = []

    async def on_step(record: StepRecord) -> StepVerdict:
        records.append(record)
        return "continue"

    reader = Reader()
    running = asyncio.create_task(turn(make(), callbacks=reader.callbacks(on_step=on_step), timeout_s=20))
    if ends.parts[-1].kind == "stall":
        await until(lambda: reader.restarts == 1 and reader.text)
        await pass_time(21)
    result = await running
    (step,) = records
    # Of the broken one only the start was counted: 7 read, 1 produced.
    assert (step.tool_usage.input_tokens, step.tool_usage.output_tokens) == (7, 1)
    assert step.usage.input_tokens == 7
    assert result.usage.tokens == step.usage + step.tool_usage
    assert result.usage.turns == 1


async def test_an_abort_ends_a_pause_at_once(server: ModelServer, make: MakeEngine, counts: CountingMetrics) -> None:
    server.reply(OVERLOADED)
    abort = AbortSignal()
    slow = Policy(backoff_s=60.0, backoff_cap_s=60.0, patience_s=600.0)
    running = asyncio.create_task(turn(make(policy=slow), abort=abort))
    await until(lambda: counts.retries)
    abort.abort("cancel")
    result = await asyncio.wait_for(running, 60)
    assert (result.stop_reason, len(server.requests)) == ("aborted", 1)


async def test_pauses_count_as_time_that_the_turn_waits_for_its_model(server: ModelServer, make: MakeEngine) -> None:
    server.reply(OVERLOADED)
    slow = Policy(backoff_s=60.0, backoff_cap_s=60.0, patience_s=600.0)
    result = await turn(make(policy=slow), reasoning_timeout_s=0.2)
    assert result.stop_reason == "timeout"
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("timeout", True)
    assert "0.2 s" in result.error.message


def test_the_pause_doubles_up_to_its_cap() -> None:
    policy = Policy(backoff_s=0.5, backoff_cap_s=3.0)
    assert [policy.backoff(retry, 1.0) for retry in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert policy.backoff(1, 0.0) == 0.25
