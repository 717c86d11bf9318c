"""Answers with a schema: requested, checked, sent back once, and then an error."""

from typing import Any

import orjson
import pytest

from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.anthropic import AnthropicEngine
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.support.servers.model_server import ModelServer, Part, Stream

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer", "minimum": -90}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
RIGHT = Stream((Part("text", ['{"city": "Ulm", ', '"degrees": 7}']),))
NO_JSON = Stream((Part("text", ["It is 7 degrees."]),))
TOO_COLD = Stream((Part("text", ['{"city": "Ulm", "degrees": -300}']),))
OPTIONS = EngineOptions(output_schema=SCHEMA)


async def test_the_schema_goes_to_the_provider_and_the_answer_comes_back_as_a_value(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(RIGHT)
    result = await engine.run("hi", OPTIONS, "sandbox")
    sent = server.requests[0]["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["required"] == ["city", "degrees"]
    assert (result.stop_reason, result.output) == ("end_turn", {"city": "Ulm", "degrees": 7})


@pytest.mark.parametrize(
    ("wrong", "told"), [(NO_JSON, "it is no JSON"), (TOO_COLD, "at $.degrees: -300 is less than the minimum of -90")]
)
async def test_a_wrong_answer_is_sent_back_once(
    server: ModelServer, engine: AnthropicEngine, wrong: Stream, told: str
) -> None:
    server.reply(wrong, RIGHT)
    recorder = TurnRecorder()
    result = await engine.run("hi", OPTIONS, "sandbox", callbacks=recorder.callbacks())
    assert result.output == {"city": "Ulm", "degrees": 7}
    assert told in server.requests[1]["messages"][-1]["content"][0]["text"]
    assert [message.role for message in result.messages] == ["assistant", "user", "assistant"]
    assert [(record.final, len(record.messages)) for record in recorder.records] == [(False, 2), (True, 1)]
    assert_valid(result.messages)


async def test_a_second_wrong_answer_is_an_error_of_the_model(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(NO_JSON)
    result = await engine.run("hi", OPTIONS, "sandbox")
    assert len(server.requests) == 2
    assert result.error is not None
    assert (result.stop_reason, result.error.kind, result.error.retryable) == ("error", "model_error", True)
    assert "does not fulfil the output schema" in result.error.message
    assert result.text == "It is 7 degrees."
    assert result.output is None


async def test_a_resumed_turn_continues_after_the_answer_that_was_sent_back(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(NO_JSON, RIGHT)
    recorder = TurnRecorder()
    await engine.run("hi", OPTIONS, "sandbox", callbacks=recorder.callbacks())
    server.requests.clear()
    server.reply(RIGHT)
    options = EngineOptions(output_schema=SCHEMA, journal=(recorder.records[0],))
    result = await engine.run("hi", options, "sandbox")
    assert result.output == {"city": "Ulm", "degrees": 7}
    assert [message["role"] for message in server.requests[0]["messages"]] == ["user", "assistant", "user"]


async def test_only_the_last_answer_is_checked(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("text", ["Let me look"]), Part("tool", ("toolu_1", "count", {})))), RIGHT)
    options = EngineOptions(output_schema=SCHEMA, mcp_servers=Bench().servers())
    result = await engine.run("hi", options, "sandbox")
    assert (result.output, text_of(result.messages[0].content)) == ({"city": "Ulm", "degrees": 7}, "Let me look")


async def test_a_truncated_answer_is_no_value(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("text", ['{"city": ']),), stop_reason="max_tokens"))
    result = await engine.run("hi", OPTIONS, "sandbox")
    assert (result.stop_reason, result.output, len(server.requests)) == ("max_tokens", None, 1)


async def test_an_invalid_schema_is_reported_before_the_first_model_call(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    result = await engine.run("hi", EngineOptions(output_schema={"type": "strnig"}), "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, server.requests) == ("unknown", False, [])
    assert "is not a JSON schema" in result.error.message


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"type": ["null", "string"]}, "null"),
        ({"type": "object", "properties": {"a": {"type": ["integer", "null"]}}}, '{"a": null}'),
        ({"type": "object"}, '{"anything": [1]}'),
        ({"type": "array", "items": {"type": "object"}}, '[{"anything": 1}]'),
        ({"type": "array", "items": True}, "[1]"),
        ({"minimum": 3}, "4"),
        ({}, '"free"'),
    ],
)
async def test_a_schema_that_the_grammar_cannot_express_is_in_the_prompt(
    server: ModelServer, engine: AnthropicEngine, schema: dict[str, Any], answer: str
) -> None:
    server.reply(Stream((Part("text", [answer]),)))
    options = EngineOptions(system_prompt="You are kind.", output_schema=schema)
    result = await engine.run("hi", options, "sandbox")
    assert (result.error, result.output) == (None, orjson.loads(answer))
    assert "output_config" not in server.requests[0]
    system = server.requests[0]["system"]
    assert system[0]["cache_control"]
    assert orjson.dumps(schema).decode() in system[-1]["text"]


async def test_a_schema_that_the_grammar_expresses_is_not_in_the_prompt(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(RIGHT)
    await engine.run("hi", OPTIONS, "sandbox")
    assert "system" not in server.requests[0]
