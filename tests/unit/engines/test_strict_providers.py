"""The model server of the tests refuses what the real providers refuse."""

import base64
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from nova_workers.sdk.testing.strict.signatures import sign
from tests.support.data import media_samples
from tests.support.servers.strict import refusal_of

Json = dict[str, Any]
Change = Callable[[Json], object]

TEXT = {"type": "text", "text": "hi"}
MARK = {"type": "ephemeral"}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
MESSAGES: Json = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4_096,
    "system": [{**TEXT, "cache_control": MARK}],
    "tools": [{"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "messages": [
        {"role": "user", "content": [TEXT]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": sign("Hm")},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [TEXT]}, TEXT]},
    ],
}
CHAT: Json = {
    "model": "m",
    "tools": [{"type": "function", "function": FUNCTION}],
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ],
}
RESPONSES: Json = {
    "model": "m",
    "tools": [{"type": "function", **FUNCTION}],
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
    ],
}


def _refusal(path: str, request: Json, change: Change | None = None) -> str | None:
    body = deepcopy(request)
    if change is not None:
        change(body)
    refusal = refusal_of(path, {}, body, 1)
    return None if refusal is None else refusal.message


def _block(body: Json, message: int, block: int) -> Json:
    return body["messages"][message]["content"][block]


def _image(raw: bytes, media_type: str = "image/png", data: str | None = None) -> Json:
    data = base64.b64encode(raw).decode() if data is None else data
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _with(*blocks: Json) -> Change:
    return lambda body: body["messages"][2]["content"].extend(blocks)


def _schema(**schema: Any) -> Change:
    return lambda body: body["tools"][0].update(input_schema=schema)


def _function(**fields: Any) -> Change:
    return lambda body: body["tools"][0]["function"].update(fields)


def _call_id(name: str) -> Change:
    def change(body: Json) -> None:
        body["messages"][2]["tool_calls"][0]["id"] = body["messages"][3]["tool_call_id"] = name

    return change


def test_a_request_that_keeps_the_rules_is_taken() -> None:
    assert _refusal("/v1/messages?beta=true", MESSAGES) is None
    assert _refusal("/v1/chat/completions", CHAT) is None
    assert _refusal("/v1/responses", RESPONSES) is None
    assert _refusal("/v1/messages", MESSAGES, _with(_image(media_samples.JPEG, "image/jpeg"))) is None


_OF_MESSAGES: list[tuple[Change, str]] = [
    (lambda body: body["messages"].pop(), "without `tool_result` blocks immediately after: t1"),
    (lambda body: body["messages"][2]["content"].reverse(), "without `tool_result` blocks immediately after"),
    (lambda body: body["messages"].pop(1), "unexpected `tool_use_id`"),
    (lambda body: body["messages"].extend(body["messages"][1:]), "ids must be unique"),
    (lambda body: _block(body, 1, 0).update(thinking="Oh"), "Invalid `signature`"),
    (lambda body: body["messages"][1]["content"].pop(0), "must start with a thinking block"),
    (lambda body: body["messages"][1]["content"].reverse(), "The final block"),
    (lambda body: _block(body, 1, 1).update(id="a b"), "tool_use.id: String should match"),
    (lambda body: _block(body, 1, 1).update(name="a b"), "tool_use.name: String should match"),
    (lambda body: _block(body, 1, 1).update(input=[]), "valid dictionary"),
    (lambda body: _block(body, 1, 1).update(origin={}), "origin: Extra inputs"),
    (lambda body: _block(body, 0, 0).update(text=""), "must be non-empty"),
    (lambda body: _block(body, 0, 0).update(text=" \n"), "non-whitespace"),
    (lambda body: _block(body, 0, 0).update(text="\ud83d"), "not valid JSON"),
    (lambda body: body["messages"][0].update(content=[]), "must have non-empty content"),
    (lambda body: body["system"][0].update(text=""), "system: text content blocks"),
    (lambda body: body.update(messages=[]), "at least one message"),
    (lambda body: body.update(n=2), "n: Extra inputs"),
    (lambda body: body.update(max_tokens=1_024), "must be greater than `thinking"),
    (lambda body: body["thinking"].update(budget_tokens=1_000), "greater than or equal to 1024"),
    (lambda body: body.update(temperature=0.5), "only be set to 1"),
    (lambda body: body.update(model="claude-opus-5-5"), "is not supported for this model"),
    (_with(*[{**TEXT, "cache_control": MARK}] * 4), "A maximum of 4 blocks"),
    (_with({"type": "audio"}), "Input tag 'audio'"),
    (_with(_image(b"", data="%%%")), "invalid base64"),
    (_with(_image(b"no picture")), "Could not process image"),
    (_with(_image(media_samples.GIF)), "does not match the provided media type"),
    (_with(_image(b"", data="A" * 5_300_000)), "exceeds 5 MB"),
    (_with(_image(media_samples.png(8_001, 1))), "max allowed size: 8000"),
    (_with(*[_image(media_samples.png(2_001, 1))] * 21), "many-image requests: 2000"),
    (_with(*[_image(media_samples.png())] * 101), "too many images"),
    (
        lambda body: _block(body, 2, 0).update(is_error=True, content=[_image(media_samples.png())]),
        "all content must be type `text`",
    ),
    (lambda body: body["tools"].append(body["tools"][0]), "names must be unique"),
    (lambda body: body["tools"][0].update(name="a" * 129), "name: String should match"),
    (_schema(), "input_schema.type: Field required"),
    (_schema(type="array"), "should be 'object'"),
    (_schema(type="object", anyOf=[]), "does not support oneOf"),
    (_schema(type="object", properties={"a b": {}}), "Property keys should match"),
    (_schema(type="object", properties={"a": {"type": "text"}}), "JSON schema is invalid"),
]


@pytest.mark.parametrize(("change", "says"), _OF_MESSAGES)
def test_the_messages_api_refuses_what_it_cannot_take(change: Change, says: str) -> None:
    assert says in (_refusal("/v1/messages", MESSAGES, change) or "")


_OF_CHAT: list[tuple[Change, str]] = [
    (lambda body: body["messages"].pop(), "did not have response messages: c1"),
    (lambda body: body["messages"].pop(2), "must be a response to a preceeding message"),
    (lambda body: body["messages"].append(body["messages"][3]), "must be a response to a preceeding message"),
    (lambda body: body["messages"][1].update(content=None), "got null"),
    (lambda body: body["messages"][1].update(content=[]), "empty array"),
    (
        lambda body: body["messages"][3].update(content=[{"type": "image_url"}]),
        "only allowed for messages with role",
    ),
    (lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments={}), "expected a string"),
    (lambda body: body.update(tools=[]), "empty array"),
    (lambda body: body.update(top_k=3), "Unrecognized request argument supplied: top_k"),
    (lambda body: body["messages"].extend([body["messages"][1]] * 2_048), "maximum length 2048"),
    (lambda body: body["messages"][1].update(content="a" * 10_485_761), "maximum length 10485760"),
    (
        lambda body: body["messages"][1].update(content=[{"type": "image_url", "image_url": {"url": "u"}}] * 501),
        "Too many images",
    ),
    (_call_id("c" * 41), "maximum length 40, but got a string with length 41"),
    (_function(returns={}), "Unknown parameter: 'tools[0].function.returns'"),
    (_function(name="a b"), "does not match pattern"),
    (_function(parameters={"type": "object"}), "object schema missing properties"),
    (_function(parameters={"type": None}), "got 'type: \"None\"'"),
    (
        _function(parameters={"type": "object", "properties": {"a": {"type": "array"}}}),
        "array schema missing items",
    ),
    (_function(parameters={"type": "object", "properties": {}, "not": {}}), "at the top level"),
]


@pytest.mark.parametrize(("change", "says"), _OF_CHAT)
def test_chat_completions_refuse_what_they_cannot_take(change: Change, says: str) -> None:
    assert says in (_refusal("/v1/chat/completions", CHAT, change) or "")


_OF_RESPONSES: list[tuple[Change, str]] = [
    (lambda body: body["input"].pop(), "No tool output found for function call c1"),
    (lambda body: body["input"].pop(2), "required following item"),
    (lambda body: body["input"][3].update(call_id="c2"), "No tool call found"),
    (lambda body: body["input"][0]["content"][0].update(type="output_text"), "Supported values are: 'input_text'"),
    (lambda body: body["tools"][0].update(name=""), "does not match pattern"),
    (lambda body: body["tools"][0].update(returns={}), "Unknown parameter: 'tools[0].returns'"),
    (lambda body: body.update(n=2), "Unknown parameter: 'n'"),
    (lambda body: body["input"][2].update(parsed_arguments={}), "Unknown parameter: 'input[2].parsed_arguments'"),
    (lambda body: body["input"][2].update(call_id="c" * 65), "maximum length 64"),
    (lambda body: body["input"].append(body["input"][3]), "Duplicate output"),
    (lambda body: body.update(input=[]), "Missing required parameter"),
]


@pytest.mark.parametrize(("change", "says"), _OF_RESPONSES)
def test_the_responses_api_refuses_what_it_cannot_take(change: Change, says: str) -> None:
    assert says in (_refusal("/v1/responses", RESPONSES, change) or "")


@pytest.mark.parametrize(
    ("path", "request_"),
    [("/v1/messages", MESSAGES), ("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSES)],
)
def test_a_body_that_is_too_large_is_refused(path: str, request_: Json) -> None:
    refusal = refusal_of(path, {}, request_, 50 * 1024 * 1024 + 1)
    assert refusal is not None
    assert refusal.code == 413
