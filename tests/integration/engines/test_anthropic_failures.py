"""A provider that refuses, breaks or lies: each becomes an error of the right kind, and never an exception."""

import asyncio
from pathlib import Path

import pytest

from nova_workers.base.errors import ConfigurationError, EngineErrorKind
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineCallbacks, EngineError, EngineOptions, EngineResult
from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.servers.model_server import Hang, ModelServer, Part, Reply, Status, Stream
from tests.support.waiting import pass_time, until

SO_FAR = Part("text", ["So far"])


async def _run(engine: AnthropicEngine, server: ModelServer, *replies: Reply) -> tuple[EngineResult, EngineError]:
    server.reply(*replies)
    result = await asyncio.wait_for(engine.run("hi", EngineOptions(model="sonnet"), "sandbox"), 60)
    assert result.stop_reason == "error"
    assert result.error is not None
    return result, result.error


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (Status(400, "invalid_request_error", "max_tokens: required"), "model_error", False),
        (Status(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000"), "context_overflow", False),
        (Status(401, "authentication_error", "invalid x-api-key"), "auth_failure", False),
        (Status(402, "billing_error", "no credit"), "auth_failure", False),
        (Status(403, "permission_error", "not yours"), "auth_failure", False),
        (Status(404, "not_found_error", "model: nope"), "model_error", False),
        (Status(413, "request_too_large", "too large"), "context_overflow", False),
        (Status(429, "rate_limit_error", "slow down"), "rate_limit", True),
        (Status(500, "api_error", "oops"), "model_error", True),
        (Status(502, "strange", "bad gateway"), "model_error", True),
        (Status(504, "timeout_error", "too slow"), "model_error", True),
        (Status(529, "overloaded_error", "overloaded"), "model_error", True),
    ],
)
async def test_statuses_map_to_kinds(
    server: ModelServer, engine: AnthropicEngine, status: Status, kind: EngineErrorKind, retryable: bool
) -> None:
    result, error = await _run(engine, server, status)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert str(status.code) in error.message
    assert status.message in error.message
    assert (result.text, result.messages) == ("", ())


@pytest.mark.parametrize(
    ("type", "kind", "retryable"),
    [
        ("overloaded_error", "model_error", True),
        ("rate_limit_error", "rate_limit", True),
        ("authentication_error", "auth_failure", False),
        ("something_new", "model_error", True),
    ],
)
async def test_an_error_in_mid_stream_maps_by_its_type(
    server: ModelServer, engine: AnthropicEngine, type: str, kind: EngineErrorKind, retryable: bool
) -> None:
    event = Part("event", ("error", {"error": {"type": type, "message": "Now it broke"}}))
    result, error = await _run(engine, server, Stream((SO_FAR, event)))
    assert (error.kind, error.retryable, result.text) == (kind, retryable, "So far")
    assert result.messages == (Message("assistant", (text_block("So far"),)),)


@pytest.mark.parametrize(
    "broken",
    [
        Part("cut"),
        Part("raw", b"event: content_block_delta\ndata: {broken\n\n"),
        Part("event", ("content_block_delta", {"index": 7, "delta": {"type": "text_delta", "text": "x"}})),
    ],
    ids=["half-closed", "malformed", "out of order"],
)
async def test_a_broken_stream_is_retryable(server: ModelServer, engine: AnthropicEngine, broken: Part) -> None:
    result, error = await _run(engine, server, Stream((SO_FAR, broken)))
    assert (error.kind, error.retryable, result.text) == ("model_error", True, "So far")


async def test_a_stream_without_an_end_event_is_no_answer(server: ModelServer, engine: AnthropicEngine) -> None:
    result, error = await _run(engine, server, Stream((SO_FAR, Part("end"))))
    assert (error.kind, error.retryable, result.text) == ("model_error", True, "So far")
    assert "before the response was complete" in error.message


async def test_an_incomplete_call_is_not_run_and_not_kept(server: ModelServer, engine: AnthropicEngine) -> None:
    call = Part("tool", ("toolu_1", "count", {}))
    result, _ = await _run(engine, server, Stream((SO_FAR, call, Part("cut"))))
    assert result.messages == (Message("assistant", (text_block("So far"),)),)
    assert result.tool_calls == ()


async def test_a_refusal_is_an_error_with_its_reason(server: ModelServer, engine: AnthropicEngine) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this"}
    _, error = await _run(engine, server, Stream((SO_FAR,), stop_reason="refusal", stop_details=details))
    assert (error.kind, error.retryable) == ("model_error", False)
    assert error.message == "The model refused to answer: Not this"


async def test_a_refused_connection_is_retryable() -> None:
    engine = AnthropicEngine(api_key="k", base_url="http://127.0.0.1:1", max_retries=0)
    result = await engine.run("hi", EngineOptions(), "sandbox")
    await engine.close()
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("model_error", True)


async def test_a_silent_provider_times_out(server: ModelServer) -> None:
    server.reply(Stream((SO_FAR, Part("stall"))))
    engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, request_timeout_s=60)
    tokens: list[str] = []
    callbacks = EngineCallbacks(on_token=tokens.append)
    running = asyncio.create_task(engine.run("hi", EngineOptions(), "sandbox", callbacks=callbacks))
    await until(lambda: "".join(tokens) == "So far")
    await pass_time(61)
    result = await running
    await engine.close()
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.text) == ("model_error", True, "So far")


@pytest.mark.parametrize("hang", [Hang(), Hang(pings=True)], ids=["silent", "pinging"])
async def test_a_response_that_never_begins_times_out_sooner_than_silence_within_one(
    server: ModelServer, hang: Hang
) -> None:
    server.reply(hang)
    engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, first_byte_timeout_s=0.3)
    result = await asyncio.wait_for(engine.run("hi", EngineOptions(), "sandbox"), 60)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("model_error", True)
    assert "did not begin to answer within 0.3 s" in result.error.message
    async with asyncio.timeout(60):
        await server.left.wait()
    await engine.close()


async def test_a_response_that_has_begun_may_take_longer(server: ModelServer) -> None:
    server.reply(Stream((Part("thinking", ["Hm"]), Part("sleep", 60), SO_FAR)))
    engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, first_byte_timeout_s=30)
    thoughts: list[str] = []
    callbacks = EngineCallbacks(on_reasoning=thoughts.append)
    running = asyncio.create_task(engine.run("hi", EngineOptions(), "sandbox", callbacks=callbacks))
    await until(lambda: thoughts)
    await pass_time(61)
    result = await running
    await engine.close()
    assert (result.error, result.text) == (None, "So far")


async def test_a_missing_key_is_an_auth_failure_that_names_the_setting(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    engine = AnthropicEngine(base_url=server.url, max_retries=0)
    result = await engine.run("hi", EngineOptions(), "sandbox")
    await engine.close()
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("auth_failure", False)
    assert "NOVA_MODEL__API_KEY" in result.error.message
    assert server.requests == []


def test_credentials_that_cannot_be_read_stop_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="Config file not found"):
        AnthropicEngine()


async def test_the_retry_waits_as_long_as_the_provider_requests(server: ModelServer) -> None:
    soon = {"retry-after-ms": "1"}
    overloaded = Status(529, "overloaded_error", "overloaded", headers=soon)
    server.reply(overloaded, Status(429, "rate_limit_error", "slow", headers=soon), Stream((SO_FAR,)))
    engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=2)
    result = await engine.run("hi", EngineOptions(), "sandbox")
    await engine.close()
    assert (result.stop_reason, result.text, len(server.requests)) == ("end_turn", "So far", 3)
