"""A provider that refuses, breaks or lies: each becomes an error of the right kind, and never an exception."""

import asyncio

import pytest

from nova_workers.base.errors import EngineErrorKind
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineError, EngineOptions, EngineResult
from nova_workers.engines.openai import OpenAIEngine
from nova_workers.engines.openai.provider import WireForm
from tests.integration.engines.openai.conftest import SECRET_KEY, MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import Drop, Hang, ModelServer, Part, Reply, Status, Stream

SO_FAR = Part("text", ["So far"])


async def _fails(engine: OpenAIEngine, server: ModelServer, *replies: Reply) -> tuple[EngineResult, EngineError]:
    server.reply(*replies)
    result = await asyncio.wait_for(engine.run("hi", EngineOptions(model="sonnet"), "sandbox"), 60)
    assert result.stop_reason == "error"
    assert result.error is not None
    return result, result.error


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (Status(400, "invalid_request_error", "max_tokens: required"), "model_error", False),
        (Status(400, "x", "This model's maximum context length is 8192 tokens"), "context_overflow", False),
        (Status(400, "x", "too long", detail="context_length_exceeded"), "context_overflow", False),
        (Status(400, "x", "Range of input length should be [1, 30720]"), "context_overflow", False),
        (Status(401, "x", "Incorrect API key", detail="invalid_api_key"), "auth_failure", False),
        (Status(402, "x", "no credit"), "auth_failure", False),
        (Status(403, "x", "not yours"), "auth_failure", False),
        (Status(404, "x", "no such model", detail="model_not_found"), "model_error", False),
        (Status(413, "x", "too large"), "context_overflow", False),
        (Status(422, "x", "field required"), "model_error", False),
        (Status(429, "x", "slow down"), "rate_limit", True),
        (Status(429, "insufficient_quota", "no credit left", detail="insufficient_quota"), "auth_failure", False),
        (Status(500, "server_error", "oops"), "model_error", True),
        (Status(503, "x", "overloaded"), "model_error", True),
        (Status(529, "x", "overloaded"), "model_error", True),
    ],
)
async def test_statuses_map_to_kinds(
    server: ModelServer, engine: OpenAIEngine, status: Status, kind: EngineErrorKind, retryable: bool
) -> None:
    result, error = await _fails(engine, server, status)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert str(status.code) in error.message or kind in ("rate_limit", "auth_failure")
    assert status.message in error.message
    assert (result.text, result.messages) == ("", ())


@pytest.mark.parametrize(
    "reply",
    [
        Stream((SO_FAR, Part("cut"))),
        Stream((SO_FAR, Part("end"))),
        Stream((SO_FAR, Part("raw", b"data: {not json\n\n"))),
        Stream((SO_FAR, Part("raw", b'data: {"error": {"message": "Overloaded", "code": 503}}\n\n'))),
        Stream(
            (SO_FAR, Part("event", ("error", {"code": "server_error", "message": "oops", "error": {"message": ""}})))
        ),
    ],
    ids=["cut", "ends early", "not JSON", "error in the stream", "error event"],
)
async def test_a_stream_that_breaks_off_keeps_its_text_and_may_be_retried(
    server: ModelServer, engine: OpenAIEngine, reply: Stream
) -> None:
    result, error = await _fails(engine, server, reply)
    assert (error.kind, error.retryable) == ("model_error", True)
    assert result.text == "So far"
    assert result.messages == (Message("assistant", (text_block("So far"),)),)
    # The provider sent no counts: they are estimated.
    assert result.usage.tokens.output_tokens > 0


async def test_a_connection_that_closes_without_a_response_may_be_retried(
    server: ModelServer, engine: OpenAIEngine
) -> None:
    result, error = await _fails(engine, server, Drop())
    assert (error.kind, error.retryable) == ("model_error", True)
    assert result.usage.tokens.total_tokens == 0


async def test_a_provider_that_never_begins_to_answer_times_out(
    server: ModelServer, make_engine: MakeEngine, api: WireForm
) -> None:
    engine = make_engine(api, first_byte_timeout_s=0.2)
    _, error = await _fails(engine, server, Hang(pings=True))
    assert (error.kind, error.retryable) == ("model_error", True)
    assert "did not begin to answer within 0.2 s" in error.message


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("server_error", "model_error", True),
        ("insufficient_quota", "auth_failure", False),
        ("context_length_exceeded", "context_overflow", False),
        ("invalid_prompt", "model_error", False),
    ],
)
async def test_a_response_that_failed_is_an_error_of_its_kind(
    server: ModelServer, make_engine: MakeEngine, code: str, kind: EngineErrorKind, retryable: bool
) -> None:
    failed = Stream((), error={"code": code, "message": "it went wrong"})
    _, error = await _fails(make_engine("responses"), server, failed)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert "it went wrong" in error.message


async def test_what_the_content_filter_stopped_is_no_answer(server: ModelServer, engine: OpenAIEngine) -> None:
    _, error = await _fails(engine, server, Stream((SO_FAR,), stop_reason="refusal"))
    assert (error.kind, error.retryable) == ("model_error", False)
    assert "refused to answer" in error.message


async def test_a_refusal_is_no_answer(server: ModelServer, make_engine: MakeEngine) -> None:
    said = {"type": "refusal", "refusal": "I will not."}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    parts: dict[WireForm, Part] = {"chat": Part("delta", {"refusal": "I will not."}), "responses": Part("item", item)}
    for api, part in parts.items():
        _, error = await _fails(make_engine(api), server, Stream((part,)))
        assert error.message == "The model refused to answer: I will not."


async def test_an_answer_that_is_cut_off_by_its_limit_ends_with_max_tokens(
    server: ModelServer, engine: OpenAIEngine
) -> None:
    server.reply(Stream((SO_FAR, Part("tool", ("c1", "add", '{"a": '))), stop_reason="max_tokens"))
    result = await engine.run("hi", EngineOptions(model="sonnet"), "sandbox")
    assert (result.stop_reason, result.text) == ("max_tokens", "So far")
    assert result.tool_calls == ()


async def test_a_key_that_the_provider_echoes_is_not_in_the_error(server: ModelServer, engine: OpenAIEngine) -> None:
    _, error = await _fails(engine, server, Status(401, "x", f"Incorrect API key provided: {SECRET_KEY}."))
    assert SECRET_KEY not in error.message
    assert "[redacted]" in error.message
    assert server.headers[0]["authorization"] == f"Bearer {SECRET_KEY}"


@pytest.mark.parametrize("body", [b'{"detail": "Not Found"}', b"404 page not found", b'{"error": "model is gone"}'])
async def test_the_words_of_a_server_are_kept_wherever_they_are(
    server: ModelServer, engine: OpenAIEngine, body: bytes
) -> None:
    _, error = await _fails(engine, server, Status(404, raw=body))
    assert any(words in error.message for words in ("Not Found", "page not found", "model is gone"))


@proves("security.responses")
async def test_a_response_that_does_not_end_is_given_up(server: ModelServer, engine: OpenAIEngine) -> None:
    server.reply(Stream((Part("text", ["again "] * 12_000), Part("stall"))))
    options = EngineOptions(model="sonnet", max_tokens=100)
    result = await asyncio.wait_for(engine.run("hi", options, "sandbox"), 60)
    assert result.error is not None
    assert result.error.message == "The model provider did not end its response, whose limit is 100 tokens."
    assert result.text.startswith("again again")
