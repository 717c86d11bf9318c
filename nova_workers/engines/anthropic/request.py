"""Builds requests to the Messages API.

The provider caches a request's prefix up to each of at most four marks, in the order tools, system, messages. We set
them where the less frequently changing parts end: after the tools, after the part of the system prompt that all turns
of the agent share, after the conversation before this turn, and (the mark at the request's top level) after the last
message. The mark after the earlier conversation is needed because the provider looks for a cached prefix only twenty
blocks back, and one step with many calls is longer.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nova_workers.base.anthropic_models import parse_model, takes_temperature
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, portable
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.run_options import NamedTool, ToolChoice
from nova_workers.engines.anthropic.answer_format import answer_grammar
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.sent_content import sent_blocks, without_blank_text
from nova_workers.engines.turn import BlockPlace
from nova_workers.engines.turn.answer import answer_request

_CACHED: JsonObject = {"type": "ephemeral"}
_THOUGHTS = ("thinking", "redacted_thinking")
"""Blocks that the provider refuses at the end of a message, and with a mark on them."""
_ADAPTIVE_SINCE = (4, 6)
"""From this version on a model chooses its amount of thinking; a budget is deprecated, and refused from 4.7."""
_LEAST_THINKING_TOKENS = 1024
_ANSWER_TOKENS = 1024
"""Tokens reserved for the answer besides the thinking, since `max_tokens` covers both."""
_MAX_NAME_CHARS = 128
_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_NAME_CHARS}}}")
_NOT_ALLOWED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_FILES_BETA = "files-api-2025-04-14"


def fixed_part(
    model: str,
    options: EngineOptions,
    tools: Iterable[ToolDefinition],
    default_max_tokens: int,
    *,
    server_tools: Sequence[JsonObject] = (),
    missing: str | None = None,
) -> dict[str, Any]:
    """Return the part that is the same in every request of a turn.

    Args:
        model: The model's id.
        options: The engine's options.
        tools: The turn's tools.
        default_max_tokens: Used if the options set none.
        server_tools: Tools that the provider runs.
        missing: A note to the model about missing tools. It follows the cached parts.
    """
    request: dict[str, Any] = {"model": model, "max_tokens": options.max_tokens or default_max_tokens}
    grammar = None if options.output_schema is None else answer_grammar(options.output_schema)
    system = _system(options, missing, in_words=grammar is None)
    if system:
        request["system"] = system
    definitions = [*(dict(tool) for tool in server_tools), *(_tool(tool) for tool in tools)]
    if definitions:
        definitions[-1]["cache_control"] = _CACHED
        request["tools"] = definitions
    if grammar is not None:
        request["output_config"] = {"format": {"type": "json_schema", "schema": grammar}}
    if options.thinking_budget_tokens:
        budget_tokens = max(options.thinking_budget_tokens, _LEAST_THINKING_TOKENS)
        request["thinking"] = _thinking(model, budget_tokens)
        request["max_tokens"] = max(request["max_tokens"], budget_tokens + _ANSWER_TOKENS)
    elif options.temperature is not None and takes_temperature(model):
        # The SDK has dropped the parameter. Some models still support it, but not together with thinking.
        request["extra_body"] = {"temperature": options.temperature}
    return request


def choice_on_wire(choice: ToolChoice) -> JsonObject:
    """Return the provider's form of a choice of tools."""
    if isinstance(choice, NamedTool):
        return {"type": "tool", "name": choice.name}
    return {"type": "any" if choice == "required" else choice}


def without_option(request: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Return a request without an option, wherever that is in it."""
    extra = {name: value for name, value in request.get("extra_body", {}).items() if name != option}
    others = {name: value for name, value in request.items() if name not in (option, "extra_body")}
    return {**others, "extra_body": extra} if extra else others


def with_cap(fixed: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the fixed part with a response of at most `max_tokens`, without thinking if that leaves no room for it."""
    request = {**fixed, "max_tokens": min(fixed["max_tokens"], max_tokens)}
    thinking = request.get("thinking", {})
    room = request["max_tokens"] - _ANSWER_TOKENS
    if thinking.get("budget_tokens", 0) > max(room, 0):
        if room < _LEAST_THINKING_TOKENS:
            del request["thinking"]
        else:
            request["thinking"] = {**thinking, "budget_tokens": room}
    return request


def with_messages(fixed: Mapping[str, Any], messages: Sequence[Message], history: int) -> dict[str, Any]:
    """Return the request.

    Args:
        fixed: From `fixed_part`.
        messages: The conversation.
        history: How many of the messages are older than the turn.
    """
    contents = [_sendable(message) for message in messages]
    before = next(filter(None, reversed(contents[:history])), None)
    if before is not None:
        before[-1] = {**before[-1], "cache_control": _CACHED}
    sent = [
        {"role": message.role, "content": content}
        for message, content in zip(messages, contents, strict=True)
        if content
    ]
    request = {**fixed, "messages": sent, "cache_control": _CACHED}
    if _refers_to_files(messages):
        request["betas"] = [_FILES_BETA]
    return request


def place_in(messages: Sequence[Message], place: BlockPlace) -> BlockPlace | None:
    """Return the position in the conversation of a block of a request, which is not formed like the conversation.

    None if the conversation does not have the block, but only the request.
    """
    sent = [at for at, message in enumerate(messages) if _sendable(message)]
    if place.message >= len(sent):
        return None
    at = sent[place.message]
    if messages[at].role == "assistant":
        return replace(place, message=at)
    blocks = sent_blocks(messages[at].content)
    block = blocks[place.block] if place.block < len(blocks) else None
    if block is None or block.at is None:
        return None
    part = block.part
    if part is None and place.part is not None:
        part = block.parts[place.part] if place.part < len(block.parts) else None
    return BlockPlace(at, block.at, part)


def without_last_thoughts(content: Sequence[ContentBlock]) -> list[ContentBlock]:
    """Return the blocks without trailing thinking, which a response has that was cut off while the model thought."""
    kept = list(content)
    while kept and kept[-1].get("type") in _THOUGHTS:
        kept.pop()
    return kept


def _system(options: EngineOptions, missing: str | None, *, in_words: bool) -> list[JsonObject]:
    prompt = options.system_prompt or ""
    split = len(prompt) if options.stable_prompt_chars is None else options.stable_prompt_chars
    stable, changing = prompt[:split], prompt[split:]
    blocks: list[JsonObject] = []
    if stable.strip():
        blocks.append({"type": "text", "text": stable, "cache_control": _CACHED})
    if changing.strip():
        blocks.append({"type": "text", "text": changing})
    if options.output_schema is not None and in_words:
        blocks.append({"type": "text", "text": answer_request(options.output_schema)})
    if missing:
        blocks.append({"type": "text", "text": missing})
    return blocks


def system_text(request: Mapping[str, Any]) -> str:
    """Return all of a request's system prompt."""
    text = ""
    for block in request.get("system", ()):
        # What follows the stable part begins with the blank line between them.
        text += block["text"] if not text or block["text"].startswith("\n") else f"\n\n{block['text']}"
    return text


def _sendable(message: Message) -> list[ContentBlock]:
    """Return the blocks of a stored message in a form that the provider accepts; empty to omit the message."""
    if message.role == "assistant":
        seen = without_last_thoughts(without_blank_text(portable(message.content)))
        return [_with_fit_name(block) for block in seen]
    return [sent.block for sent in sent_blocks(message.content)]


def _with_fit_name(block: ContentBlock) -> ContentBlock:
    """Return a call with a name that the provider accepts, even if a model invented the name."""
    if block.get("type") != "tool_use" or _TOOL_NAME.fullmatch(block["name"]):
        return block
    return {**block, "name": _NOT_ALLOWED_IN_NAMES.sub("_", block["name"])[:_MAX_NAME_CHARS]}


def _refers_to_files(messages: Sequence[Message]) -> bool:
    return any(_is_file(block) for message in messages for block in message.content)


def _is_file(block: ContentBlock) -> bool:
    match block:
        case {"type": "image" | "document", "source": {"type": "file"}}:
            return True
        case {"type": "tool_result", "content": [*inner]}:
            return any(_is_file(part) for part in inner)
        case _:
            return False


def _tool(tool: ToolDefinition) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _thinking(model: str, budget_tokens: int) -> JsonObject:
    if _version(model) >= _ADAPTIVE_SINCE:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": budget_tokens}


def _version(model: str) -> tuple[int, int]:
    """Return the model's version; 0.0 for a name without one, whose requests are then not adapted."""
    name = parse_model(model)
    return (0, 0) if name is None else name.version
