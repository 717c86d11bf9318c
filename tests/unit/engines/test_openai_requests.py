"""Parts of requests of the engine `openai` that are pure."""

from typing import Any

import pytest

from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.openai.catalog import Target
from nova_workers.engines.openai.names import ToolNames, wire_name
from nova_workers.engines.openai.provider import OpenAIProvider
from nova_workers.engines.openai.responses_request import responses_body
from nova_workers.engines.openai.wire import TurnRequest
from nova_workers.engines.strict_schemas import is_strict

CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({**CLOSED, "properties": {"n": NUMBER}, "required": ["n"]}, True),
        ({**CLOSED, "properties": {"n": NUMBER}, "required": []}, False),
        ({"type": "object", "properties": {"n": NUMBER}, "required": ["n"]}, False),
        ({"type": "array", "items": NUMBER}, False),
        ({"type": "object"}, False),
        ({**CLOSED, "properties": {"n": {"oneOf": [NUMBER]}}, "required": ["n"]}, False),
        ({**CLOSED, "properties": {"n": {"type": "array", "items": {"type": "object"}}}, "required": ["n"]}, False),
        ({**CLOSED, "properties": {"n": True}, "required": ["n"]}, False),
        (
            {
                **CLOSED,
                "properties": {"n": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}},
                "required": ["n"],
                "$defs": {"x": {**CLOSED, "properties": {}, "required": []}},
            },
            True,
        ),
    ],
)
def test_strict_mode_is_asked_for_where_it_can_express_the_schema(schema: dict[str, Any], *, strict: bool) -> None:
    assert is_strict(schema) is strict


@pytest.mark.parametrize("name", ["add", "a" * 64, "a" * 65, "mcp__server__" + "x" * 100, "with.dot", "ä"])
def test_tool_names_are_valid_for_the_provider_and_mapped_back(name: str) -> None:
    wire = wire_name(name)
    assert len(wire) <= 64
    assert wire.replace("_", "").replace("-", "").isalnum()
    assert wire.isascii()
    assert ToolNames([name, "other"]).own(wire) == name


def test_long_names_with_a_common_prefix_stay_distinct() -> None:
    assert wire_name("x" * 70 + "a") != wire_name("x" * 70 + "b")


@pytest.mark.parametrize(
    ("model", "asked", "sent"), [("gpt-5", 64, 2_048), ("gpt-5", 4_000, 4_000), ("gpt-4.1", 64, 64)]
)
def test_a_model_that_reasons_has_room_for_it(model: str, asked: int, sent: int) -> None:
    turn = TurnRequest(
        Target(OpenAIProvider(), model), EngineOptions(max_tokens=asked), (), ToolNames(()), None, 8_192, 0
    )
    assert responses_body(turn, (), None)["max_output_tokens"] == sent


def _cache_key(first: str, prompt: str, provider: OpenAIProvider | None = None) -> str | None:
    target = Target(provider or OpenAIProvider(), "gpt-5")
    options = EngineOptions(system_prompt=prompt, stable_prompt_chars=6)
    turn = TurnRequest(target, options, (), ToolNames(()), None, 100, 0)
    said = [Message("user", (text_block(first),)), Message("user", (text_block("more"),))]
    return responses_body(turn, said, None).get("prompt_cache_key")


def test_openai_looks_for_a_conversation_in_the_same_cache() -> None:
    assert _cache_key("hi", "Stable, at noon") == _cache_key("hi", "Stable, at one")
    assert _cache_key("hi", "Stable") != _cache_key("hello", "Stable")
    assert _cache_key("hi", "Stable", OpenAIProvider("local", "http://x/v1", "responses")) is None
