"""Builds requests for the Responses API.

They are stateless (``store: false``): each carries the whole conversation, with the reasoning of this model in the
encrypted form in which the provider sent it. So any worker can continue any conversation.
"""

import hashlib
from collections.abc import Iterator, Sequence

import orjson

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, Message, text_of
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.openai.content import Media, Text, foreign_thinking, parts_of, result_text, splits
from nova_workers.engines.openai.names import wire_id, wire_name
from nova_workers.engines.openai.wire import TurnRequest, answer_schema
from nova_workers.engines.strict_schemas import is_strict

_ENCRYPTED = "reasoning.encrypted_content"


def responses_body(turn: TurnRequest, messages: Sequence[Message], cap: int | None) -> JsonObject:
    """Return a request's body.

    Args:
        turn: What the turn's requests share.
        messages: The conversation.
        cap: Limit of the response's tokens besides the turn's own.
    """
    provider = turn.target.provider
    body: JsonObject = {
        "model": turn.target.model,
        "input": list(_items(turn, messages)),
        "stream": True,
        "store": False,
        "max_output_tokens": turn.max_tokens(cap),
    }
    if turn.instructions:
        body["instructions"] = turn.instructions
    if provider.is_openai:
        body["prompt_cache_key"] = _cache_key(turn, messages)
    if turn.tools:
        body["tools"] = [_tool(tool) for tool in turn.tools]
        if not provider.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    answer_format = _answer_format(turn)
    if answer_format is not None:
        body["text"] = {"format": answer_format}
    if turn.temperature is not None:
        body["temperature"] = turn.temperature
    body |= provider.extra_body
    if turn.effort is not None:
        # Only asked for here: models that do not reason refuse it.
        body |= {"reasoning": {"effort": turn.effort, "summary": "auto"}, "include": [_ENCRYPTED]}
        if provider.thinking_body is not None:
            body |= provider.thinking_body
    return body


def responses_choice(name: str) -> JsonObject:
    """Return the choice of one tool."""
    return {"type": "function", "name": wire_name(name)}


def _cache_key(turn: TurnRequest, messages: Sequence[Message]) -> str:
    """Return the same key for all requests of a conversation: the provider then looks in the same cache."""
    first = text_of(messages[0].content) if messages else ""
    prompt = turn.options.system_prompt or ""
    seed = prompt[: turn.options.stable_prompt_chars] + "\x00" + first
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _tool(tool: ToolDefinition) -> JsonObject:
    return {
        "type": "function",
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": tool.input_schema,
        # Strict mode refuses most schemas of tools. What a call contains is checked before the tool runs.
        "strict": False,
    }


def _answer_format(turn: TurnRequest) -> JsonObject | None:
    enforced = turn.enforced_schema
    if enforced is not None:
        return {"type": "json_schema", **answer_schema(enforced, strict=is_strict(enforced))}
    asks = turn.options.output_schema is not None and turn.target.provider.structured_output == "json_object"
    return {"type": "json_object"} if asks else None


def _items(turn: TurnRequest, messages: Sequence[Message]) -> Iterator[JsonObject]:
    for message in messages:
        if message.role == "assistant":
            yield from _assistant(turn, message.content)
        else:
            yield from _user(turn, message)


def _assistant(turn: TurnRequest, content: Sequence[ContentBlock]) -> Iterator[JsonObject]:
    pending: list[JsonObject] = []
    for block in content:
        match block:
            case {"type": "thinking"}:
                pending += _reasoning(turn, block)
            case {"type": "text", "text": str() as text} if text.strip():
                yield from pending
                pending.clear()
                yield _said(turn, block)
            case {"type": "tool_use"}:
                yield from pending
                pending.clear()
                yield {
                    "type": "function_call",
                    "call_id": wire_id(block["id"]),
                    "name": wire_name(block["name"]),
                    "arguments": orjson.dumps(block["input"]).decode(),
                }
            case _:
                pass
    # Reasoning without anything after it is refused, so what is pending here stays out.


def _said(turn: TurnRequest, block: ContentBlock) -> JsonObject:
    item: JsonObject = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": block["text"], "annotations": []}],
    }
    origin = block.get(ORIGIN, {})
    if origin.get("provider") == turn.target.provider.name and "phase" in origin:
        item["phase"] = origin["phase"]
    return item


def _reasoning(turn: TurnRequest, block: ContentBlock) -> list[JsonObject]:
    if foreign_thinking(block, turn.target):
        return []
    item = block[ORIGIN].get("item")
    return [item] if isinstance(item, dict) else []


def _user(turn: TurnRequest, message: Message) -> Iterator[JsonObject]:
    provider = turn.target.provider
    results, others = splits(message)
    for block in results:
        text, media = result_text(block, provider)
        parts = [*((Text(text),) if text else ()), *media]
        output = [_part(part) for part in parts] if media else text
        yield {"type": "function_call_output", "call_id": wire_id(block["tool_use_id"]), "output": output}
    content = [_part(part) for part in parts_of(others, provider)]
    if content:
        yield {"type": "message", "role": "user", "content": content}


def _part(part: Text | Media) -> JsonObject:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Media(kind="image", url=url, file_id=file_id):
            return {"type": "input_image", **({"image_url": url} if file_id is None else {"file_id": file_id})}
        case Media(url=url, file_id=file_id, name=name):
            if file_id is not None:
                return {"type": "input_file", "file_id": file_id}
            if url.startswith("data:"):
                return {"type": "input_file", "filename": name, "file_data": url}
            return {"type": "input_file", "file_url": url}
