"""Builds requests for chat completions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, Message
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.openai.content import Media, Text, foreign_thinking, parts_of, result_text, splits
from nova_workers.engines.openai.names import wire_id, wire_name
from nova_workers.engines.openai.wire import TurnRequest, answer_schema
from nova_workers.engines.strict_schemas import is_strict

DETAILS_FIELD = "reasoning_details"
"""The field of reasoning that is a list of objects."""
_OF_RESULT = "[From the result of {name}:]"


def chat_body(turn: TurnRequest, messages: Sequence[Message], cap: int | None) -> JsonObject:
    """Return a request's body.

    Args:
        turn: What the turn's requests share.
        messages: The conversation.
        cap: Limit of the response's tokens besides the turn's own.
    """
    provider = turn.target.provider
    body: JsonObject = {
        "model": turn.target.model,
        "messages": [*_system(turn), *_messages(turn, messages)],
        "stream": True,
        "stream_options": {"include_usage": True},
        provider.max_tokens_field: turn.max_tokens(cap),
    }
    if turn.tools:
        body["tools"] = [_tool(tool) for tool in turn.tools]
        if not provider.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    answer_format = _answer_format(turn)
    if answer_format is not None:
        body["response_format"] = answer_format
    if turn.temperature is not None:
        body["temperature"] = turn.temperature
    body |= provider.extra_body
    if turn.effort is not None:
        body |= {"reasoning_effort": turn.effort} if provider.thinking_body is None else provider.thinking_body
    return body


def chat_choice(name: str) -> JsonObject:
    """Return the choice of one tool."""
    return {"type": "function", "function": {"name": wire_name(name)}}


def _system(turn: TurnRequest) -> Iterator[JsonObject]:
    if turn.instructions:
        yield {"role": "system", "content": turn.instructions}


def _tool(tool: ToolDefinition) -> JsonObject:
    function = {
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _answer_format(turn: TurnRequest) -> JsonObject | None:
    enforced = turn.enforced_schema
    if enforced is not None:
        return {"type": "json_schema", "json_schema": answer_schema(enforced, strict=is_strict(enforced))}
    asks = turn.options.output_schema is not None and turn.target.provider.structured_output == "json_object"
    return {"type": "json_object"} if asks else None


def _messages(turn: TurnRequest, messages: Sequence[Message]) -> Iterator[JsonObject]:
    names = _call_names(messages)
    for at, message in enumerate(messages):
        if message.role == "assistant":
            yield from _assistant(turn, message.content, in_turn=at >= turn.history)
        else:
            yield from _user(turn, message, names)


def _call_names(messages: Iterable[Message]) -> dict[str, str]:
    return {
        block["id"]: block["name"]
        for message in messages
        for block in message.content
        if block.get("type") == "tool_use"
    }


def _assistant(turn: TurnRequest, content: Sequence[ContentBlock], *, in_turn: bool) -> Iterator[JsonObject]:
    text = "".join(block["text"] for block in content if block.get("type") == "text")
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    if not calls and not text.strip():
        return
    said: JsonObject = {"role": "assistant", "content": text}
    if calls:
        said["tool_calls"] = calls
    if in_turn and turn.target.provider.return_reasoning:
        said |= _reasoning(turn, content)
    yield said


def _call(block: ContentBlock) -> JsonObject:
    function = {"name": wire_name(block["name"]), "arguments": orjson.dumps(block["input"]).decode()}
    return {"id": wire_id(block["id"]), "type": "function", "function": function}


def _reasoning(turn: TurnRequest, content: Sequence[ContentBlock]) -> JsonObject:
    """Return the fields with the model's reasoning, as the model sent them."""
    fields: JsonObject = {}
    for block in content:
        if block.get("type") == "thinking" and not foreign_thinking(block, turn.target):
            origin = block[ORIGIN]
            if "details" in origin:
                fields[DETAILS_FIELD] = origin["details"]
            elif "tag" in origin:
                text = "".join(block["text"] for block in content if block.get("type") == "text")
                fields["content"] = f"<{origin['tag']}>\n{block['thinking']}\n</{origin['tag']}>\n\n{text}"
            elif "field" in origin:
                fields[origin["field"]] = block["thinking"]
    return fields


def _user(turn: TurnRequest, message: Message, names: dict[str, str]) -> Iterator[JsonObject]:
    provider = turn.target.provider
    results, others = splits(message)
    shown: list[Text | Media] = []
    for block in results:
        text, media = result_text(block, provider)
        call_id = block["tool_use_id"]
        name = names.get(call_id, "a tool")
        # A tool's message holds only text: images follow in a message of their own.
        note = "(the next message has it)" if media and not text else text
        yield {"role": "tool", "tool_call_id": wire_id(call_id), "content": note}
        if media:
            shown += [Text(_OF_RESULT.format(name=name)), *media]
    parts = [*shown, *parts_of(others, provider)]
    if parts:
        yield {"role": "user", "content": _content(parts)}


def _content(parts: Sequence[Text | Media]) -> str | list[JsonObject]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        # Plain text is what every server takes.
        return "\n\n".join(texts)
    return [_part(part) for part in parts]


def _part(part: Text | Media) -> JsonObject:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Media(kind="image", url=url, file_id=file_id):
            image: dict[str, Any] = {"url": url} if file_id is None else {"file_id": file_id}
            return {"type": "image_url", "image_url": image}
        case Media(url=url, file_id=None) if not url.startswith("data:"):
            # Chat completions take a document's content, and no address.
            return {"type": "text", "text": f"[A document is at {url}]"}
        case Media(url=url, file_id=file_id, name=name):
            file = {"filename": name, "file_data": url} if file_id is None else {"file_id": file_id}
            return {"type": "file", "file": file}
