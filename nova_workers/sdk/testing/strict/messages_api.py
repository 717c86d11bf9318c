"""The rules of the Messages API."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

from anthropic.types import beta
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from jsonschema_rs import ValidationError, meta

from nova_workers.sdk.testing.strict.forms import fields
from nova_workers.sdk.testing.strict.media import image_kind, image_size
from nova_workers.sdk.testing.strict.refused import Refused, require
from nova_workers.sdk.testing.strict.signatures import sign

Json = dict[str, Any]

_MAX_REQUEST_BYTES = 32 * 1024 * 1024
_MAX_IMAGE_CHARS = 5 * 1024 * 1024
_MAX_MEDIA = 100
_MANY_IMAGES = 20
_MAX_PIXELS, _MAX_PIXELS_OF_MANY = 8_000, 2_000
_MAX_MARKS = 4
_LEAST_THINKING_TOKENS = 1_024
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_VERSION = re.compile(r"claude-[a-z]+-(\d+)-(\d{1,2})(?:-|$)")
_THOUGHTS = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FILES_BETA = "files-api-2025-04-14"
_UNSUPPORTED_IN_GRAMMAR = ("minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems", "oneOf", "not")


def check_messages(body: Json, headers: Mapping[str, str], size_bytes: int) -> None:
    """Check a request.

    Raises:
        Refused: The provider refuses it.
    """
    if size_bytes > _MAX_REQUEST_BYTES:
        raise Refused("Request exceeds the maximum size", status=413, type="request_too_large")
    _check_text(body)
    _check_settings(body)
    _check_tools(body.get("tools") or [])
    _check_system(body.get("system"))
    _check_marks(body)
    messages: list[Json] = body["messages"]
    require(messages, "messages: at least one message is required")
    for at, message in enumerate(messages):
        _check_message(
            at, message, is_last=at == len(messages) - 1, files=_FILES_BETA in headers.get("anthropic-beta", "")
        )
    _check_pairs(messages)
    _check_end(body)
    _check_media(messages)


def _check_text(body: Json) -> None:
    """Half of a surrogate pair arrives as an escape, which Python's decoder takes and the provider's does not."""
    for text in _texts(body):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused("The request body is not valid JSON: no low surrogate in string") from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _check_settings(body: Json) -> None:
    known, required = fields(MessageCreateParamsBase)
    for name in required - body.keys():
        raise Refused(f"{name}: Field required")
    for name in body.keys() - known - {"stream", "temperature", "top_k", "top_p", "output_format"}:
        raise Refused(f"{name}: Extra inputs are not permitted")
    require(isinstance(body["max_tokens"], int) and body["max_tokens"] >= 1, "max_tokens: must be greater than 0")
    temperature, version = body.get("temperature"), _version(body["model"])
    if temperature is not None:
        require(0 <= temperature <= 1, "temperature: range: 0..1")
        require(version < (4, 7), "`temperature` is deprecated for this model.")
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        require(
            version < (4, 7), '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
        )
        budget = thinking.get("budget_tokens", 0)
        least = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        require(budget >= _LEAST_THINKING_TOKENS, least)
        require(body["max_tokens"] > budget, "`max_tokens` must be greater than `thinking.budget_tokens`.")
    elif thinking.get("type") == "adaptive":
        require(version == (0, 0) or version >= (4, 6), "adaptive thinking is not supported on this model")
    if thinking.get("type") in ("enabled", "adaptive"):
        require(temperature in (None, 1), "`temperature` may only be set to 1 when thinking is enabled.")
        forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
        require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    require(body.get("tools") or "tool_choice" not in body, "tool_choice may only be specified while providing tools.")
    answer = (body.get("output_config") or {}).get("format")
    if answer is not None:
        _check_grammar(answer["schema"], "output_config.format.schema")


def _check_grammar(node: Any, at: str) -> None:
    if isinstance(node, list):
        for item in node:
            _check_grammar(item, at)
    if not isinstance(node, dict):
        return
    if node.get("type") == "object":
        closed = node.get("additionalProperties") is False
        require(closed, f"{at}: For 'object' type, 'additionalProperties' must be explicitly set to false")
        for item in node.get("properties", {}).values():
            _check_grammar(item, at)
    for name in _UNSUPPORTED_IN_GRAMMAR:
        require(name not in node, f"{at}: For '{node.get('type')}' type, property '{name}' is not supported")
    for name in ("items", "anyOf", "allOf"):
        _check_grammar(node.get(name), at)
    for item in node.get("$defs", {}).values():
        _check_grammar(item, at)


def _check_tools(tools: list[Json]) -> None:
    names = [tool.get("name") for tool in tools]
    require(len(names) == len(set(names)), "tools: Tool names must be unique.")
    for at, tool in enumerate(tools):
        if tool.get("type") in (None, "custom"):
            _check_tool(f"tools.{at}.custom", tool)


def _check_tool(where: str, tool: Json) -> None:
    _check_fields(where, tool, beta.BetaToolParam)
    named = isinstance(tool["name"], str) and _TOOL_NAME.fullmatch(tool["name"])
    require(named, f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    require(isinstance(tool.get("description", ""), str), f"{where}.description: Input should be a valid string")
    schema, where = tool["input_schema"], f"{where}.input_schema"
    require(isinstance(schema, dict), f"{where}: Input should be a valid dictionary")
    require("type" in schema, f"{where}.type: Field required")
    require(schema["type"] == "object", f"{where}.type: Input should be 'object'")
    for name in ("oneOf", "allOf", "anyOf"):
        unions = f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        require(name not in schema, unions)
    try:
        meta.validate({**schema, "$schema": _DIALECT})
    except ValidationError:
        raise Refused(
            f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
            "(https://json-schema.org/draft/2020-12)."
        ) from None
    for name in schema.get("properties", {}):
        keys = f"{where}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
        require(_PROPERTY.fullmatch(name), keys)


def _check_system(system: Any) -> None:
    blocks = system if isinstance(system, list) else []
    for at, block in enumerate(blocks):
        _check_fields(f"system.{at}", block, beta.BetaTextBlockParam)
        require(block["text"], "system: text content blocks must be non-empty")
        require(block["text"].strip(), "system: text content blocks must contain non-whitespace text")


def _check_marks(body: Json) -> None:
    """Check the marks, in the order in which the provider reads them; that of the request's top level is the last."""
    marks = [body["cache_control"]] if body.get("cache_control") else []
    marks = [*_marks(body.get("tools")), *_marks(body.get("system")), *_marks(body["messages"]), *marks]
    limit = f"A maximum of {_MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
    require(len(marks) <= _MAX_MARKS, limit)
    lives = [mark.get("ttl", "5m") for mark in marks]
    ordered = lives == sorted(lives, key=["1h", "5m"].index)
    require(ordered, "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.")


def _marks(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if value.get("cache_control"):
            yield value["cache_control"]
        for name in ("content", "system"):
            yield from _marks(value.get(name))
    elif isinstance(value, list):
        for item in value:
            yield from _marks(item)


def _check_message(at: int, message: Json, *, is_last: bool, files: bool) -> None:
    where = f"messages.{at}"
    for name in message.keys() - {"role", "content"}:
        raise Refused(f"{where}.{name}: Extra inputs are not permitted")
    role: str = message.get("role", "")
    require(role in ("user", "assistant", "system"), f"{where}.role: Input should be 'user' or 'assistant'")
    blocks = _blocks(message)
    empty_allowed = is_last and role == "assistant"
    full = "all messages must have non-empty content except for the optional final assistant message"
    require(blocks or empty_allowed, f"{where}: {full}")
    for number, block in enumerate(blocks):
        place = f"{where}.content.{number}"
        _check_block(place, block, role, files=files)
    if role == "assistant" and blocks:
        last = f"{where}: The final block in an assistant message cannot be `{blocks[-1]['type']}`."
        require(blocks[-1]["type"] not in _THOUGHTS, last)


def _check_block(where: str, block: Json, role: str, *, files: bool) -> None:
    kind = block.get("type")
    form = _forms().get(kind or "")
    require(form, f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    _check_fields(f"{where}.{kind}", block, form)
    match kind:
        case "text":
            _check_words(block)
        case "thinking":
            require(role == "assistant", f"{where}: `thinking` blocks are only allowed in `assistant` messages")
            own = block["signature"] == sign(block["thinking"]) or (not block["thinking"] and block["signature"])
            require(own, f"{where}: Invalid `signature` in `thinking` block")
        case "tool_use":
            require(role == "assistant", f"{where}: `tool_use` blocks can only be in `assistant` messages")
            _check_call(where, block)
        case "tool_result":
            require(role == "user", f"{where}: `tool_result` blocks can only be in `user` messages")
            _check_result(where, block, files=files)
        case "image" | "document":
            require(role == "user", f"{where}: `{kind}` blocks are not permitted in `{role}` messages")
            _check_source(where, block, files=files)
        case _:
            pass


def _check_words(block: Json) -> None:
    require(isinstance(block["text"], str), "messages: text: Input should be a valid string")
    require(block["text"], "messages: text content blocks must be non-empty")
    require(block["text"].strip(), "messages: text content blocks must contain non-whitespace text")


def _check_call(where: str, block: Json) -> None:
    fits = _CALL_ID.fullmatch(block["id"])
    require(fits, f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    named = _CALL_NAME.fullmatch(block["name"])
    require(named, f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'")
    require(isinstance(block["input"], dict), f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_result(where: str, block: Json, *, files: bool) -> None:
    parts = _parts(block)
    for number, part in enumerate(parts):
        place, kind = f"{where}.tool_result.content.{number}", part.get("type")
        taken = kind in ("text", "image", "document", "search_result", "tool_reference")
        require(taken, f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
        if kind in _forms():
            _check_block(place, part, "user", files=files)
    if block.get("is_error"):
        words = all(part["type"] == "text" for part in parts)
        require(words, f"{where}.tool_result: all content must be type `text` if `is_error` is true")


def _check_source(where: str, block: Json, *, files: bool) -> None:
    kind, source = block["type"], block["source"]
    place = f"{where}.{kind}.source.{source['type']}"
    match source["type"]:
        case "base64" if kind == "image":
            _check_image(place, source)
        case "base64":
            _check_document(place, source)
        case "file":
            require(files, f"{where}: file sources need the beta {_FILES_BETA}")
        case "text":
            require(source["media_type"] == "text/plain", f"{place}.media_type: Input should be 'text/plain'")
        case "url" | "content":
            pass
        case other:
            raise Refused(f"{where}.{kind}.source: Input tag '{other}' does not match any of the expected tags")


def _check_image(where: str, source: Json) -> None:
    media_type, data = source["media_type"], source["data"]
    require(
        media_type in _IMAGE_TYPES,
        f"{where}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
    )
    large = f"{where}: image exceeds 5 MB maximum: {len(data)} bytes > {_MAX_IMAGE_CHARS} bytes"
    require(len(data) <= _MAX_IMAGE_CHARS, large)
    raw = _decoded(where, data)
    kind = image_kind(raw)
    require(kind and image_size(raw) and min(image_size(raw) or ()) > 0, f"{where}.data: Could not process image")
    other = f"{where}.data: Image does not match the provided media type {media_type}"
    require(kind == media_type, other)


def _check_document(where: str, source: Json) -> None:
    require(source["media_type"] == "application/pdf", f"{where}.media_type: Input should be 'application/pdf'")
    require(_decoded(where, source["data"]).startswith(b"%PDF"), f"{where}.data: The PDF specified was not valid.")


def _decoded(where: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Refused(f"{where}.data: invalid base64 data") from None


def _check_pairs(messages: list[Json]) -> None:
    seen: set[str] = set()
    turns = _turns(messages)
    for number, (at, role, blocks) in enumerate(turns):
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        require(not seen & set(calls) and len(calls) == len(set(calls)), "messages: `tool_use` ids must be unique")
        seen |= set(calls)
        _, _, following = turns[number + 1] if number + 1 < len(turns) else (0, "", [])
        if role == "assistant" and calls:
            _check_answers(at, calls, following)
        before = turns[number - 1][2] if number else []
        asked = [block["id"] for block in before if block["type"] == "tool_use"]
        for block in blocks:
            if block["type"] == "tool_result" and block["tool_use_id"] not in asked:
                raise Refused(
                    f"messages.{at}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in "
                    "the previous message."
                )


def _check_answers(at: int, calls: list[str], following: list[Json]) -> None:
    """Check that results come first in the message after the calls, one for each."""
    answered: list[str] = []
    for block in following:
        if block["type"] != "tool_result":
            break
        answered.append(block["tool_use_id"])
    missing = [call for call in calls if call not in answered]
    if missing:
        raise Refused(
            f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )
    twice = f"messages.{at + 1}: each tool_use must have a single result. Found multiple `tool_result` blocks"
    require(len(answered) == len(set(answered)), twice)


def _check_end(body: Json) -> None:
    """Check the last message: what a model may continue, and the thinking that it had before its calls."""
    messages: list[Json] = body["messages"]
    last, blocks = messages[-1], _blocks(messages[-1])
    if last["role"] == "assistant" and blocks and blocks[-1]["type"] == "text":
        # A response that the provider paused while its own tool worked is sent back as it is.
        paused = any(block["type"] in _SERVER_CALLS for block in blocks)
        prefill = (
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
        require(paused or _version(body["model"]) < (4, 6), prefill)
        trailing = "messages: final assistant content cannot end with trailing whitespace"
        require(blocks[-1]["text"] == blocks[-1]["text"].rstrip(), trailing)
    if (body.get("thinking") or {}).get("type") != "enabled" or len(messages) < 2:
        return
    results = [block for block in blocks if block["type"] == "tool_result"]
    first = _blocks(messages[-2])[0]["type"]
    if results and messages[-2]["role"] == "assistant" and first not in _THOUGHTS:
        raise Refused(
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{first}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block "
            "(preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
        )


def _check_media(messages: list[Json]) -> None:
    found = [
        (f"messages.{at}.content.{number}", part)
        for at, message in enumerate(messages)
        for number, block in enumerate(_blocks(message))
        for part in (block, *(_parts(block) if block["type"] == "tool_result" else ()))
        if part["type"] in ("image", "document")
    ]
    images = [(where, part) for where, part in found if part["type"] == "image"]
    many = f"messages: too many images and documents: {len(images)} + {len(found) - len(images)} > {_MAX_MEDIA}"
    require(len(found) <= _MAX_MEDIA, many)
    most = _MAX_PIXELS_OF_MANY if len(images) > _MANY_IMAGES else _MAX_PIXELS
    for where, image in images:
        if image["source"]["type"] == "base64":
            size = image_size(base64.b64decode(image["source"]["data"])) or (0, 0)
            about = " for many-image requests" if most == _MAX_PIXELS_OF_MANY else ""
            large = f"At least one of the image dimensions exceed max allowed size{about}: {most} pixels"
            require(max(size) <= most, f"{where}.image.source.base64.data: {large}")


def _turns(messages: list[Json]) -> list[tuple[int, str, list[Json]]]:
    """Return each turn (the index of its first message, role, blocks); neighbours of one role are one turn."""
    turns: list[tuple[int, str, list[Json]]] = []
    for at, message in enumerate(messages):
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(_blocks(message))
        elif message["role"] != "system":
            turns.append((at, message["role"], [*_blocks(message)]))
    return turns


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _parts(result: Json) -> list[Json]:
    content = result.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


def _version(model: str) -> tuple[int, int]:
    found = _VERSION.match(model)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _check_fields(where: str, given: Json, form: Any) -> None:
    known, required = fields(form)
    for name in sorted(required - given.keys()):
        raise Refused(f"{where}.{name}: Field required")
    for name in sorted(given.keys() - known):
        raise Refused(f"{where}.{name}: Extra inputs are not permitted")


@cache
def _forms() -> dict[str, Any]:
    """Return the SDK's types of blocks by the value of ``type``."""
    forms: dict[str, Any] = {}
    for form in get_args(beta.BetaContentBlockParam):
        if isinstance(form, type):
            kind = get_args(get_type_hints(form)["type"])
            forms |= dict.fromkeys(kind, form)
    return forms
