"""The rules of OpenAI for chat completions."""

from collections.abc import Set
from typing import Any

from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.shared_params import FunctionDefinition

from nova_workers.sdk.testing.strict.forms import fields
from nova_workers.sdk.testing.strict.openai_limits import (
    MAX_CALLS,
    MAX_ID_CHARS,
    check_images,
    check_parameters,
    check_size,
    check_text,
)
from nova_workers.sdk.testing.strict.openai_tools import NAME, check_answer_schema, check_functions
from nova_workers.sdk.testing.strict.refused import Refused, require

Json = dict[str, Any]

_MAX_MESSAGES = 2_048
_USER_PARTS = ("text", "image_url", "input_audio", "file")


def check_chat(body: Json, size_bytes: int, also: Set[str] = frozenset()) -> None:
    """Check a request.

    Args:
        body: The request.
        size_bytes: Of its body.
        also: Fields that a server with this wire form takes beside those of OpenAI.

    Raises:
        Refused: The provider refuses it.
    """
    check_size(size_bytes)
    known, _ = fields(CompletionCreateParamsBase)
    for name in sorted(body.keys() - known - {"stream"} - also):
        raise Refused(f"Unrecognized request argument supplied: {name}")
    require(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    messages: list[Json] = body.get("messages") or []
    require(messages, "Invalid 'messages': empty array. Expected an array with minimum length 1.")
    long = f"Invalid 'messages': array too long. Expected an array with maximum length {_MAX_MESSAGES}"
    require(len(messages) <= _MAX_MESSAGES, f"{long}, but got an array with length {len(messages)} instead.")
    _check_tools(body)
    _check_order(messages)
    for at, message in enumerate(messages):
        _check_message(f"messages[{at}]", message)
    parts = [part for message in messages if isinstance(message.get("content"), list) for part in message["content"]]
    check_images(sum(part.get("type") == "image_url" for part in parts))


def _check_tools(body: Json) -> None:
    tools: list[Json] = body.get("tools", [])
    require(tools or "tools" not in body, "Invalid 'tools': empty array. Expected an array with minimum length 1.")
    functions = [(f"tools[{at}].function", tool["function"]) for at, tool in enumerate(tools)]
    for where, function in functions:
        check_parameters(f"{where}.", function, fields(FunctionDefinition)[0])
    check_functions(functions)
    require(tools or "tool_choice" not in body, "'tool_choice' is only allowed when 'tools' are specified.")
    require(
        tools or "parallel_tool_calls" not in body, "'parallel_tool_calls' is only allowed when 'tools' are specified."
    )
    answer: Json = body.get("response_format", {})
    if answer.get("type") == "json_schema":
        check_answer_schema(answer["json_schema"]["schema"])


def _check_order(messages: list[Json]) -> None:
    """Check that each call has one result, in the messages that follow it."""
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") != "tool":
            _check_answered(open_calls)
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            once = len(open_calls) == len(set(open_calls))
            require(once, f"Invalid 'messages[{at}].tool_calls': ids must be unique.")
        elif message.get("tool_call_id") in open_calls:
            open_calls.remove(message["tool_call_id"])
        else:
            raise Refused(
                f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                f"'tool_calls' (messages[{at}])."
            )
    _check_answered(open_calls)


def _check_answered(open_calls: list[str]) -> None:
    if open_calls:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}"
        )


def _check_message(where: str, message: Json) -> None:
    role, content = message.get("role"), message.get("content")
    require(role in ("system", "developer", "user", "assistant", "tool"), f"Invalid value: {role!r} at '{where}.role'.")
    calls: list[Json] | None = message.get("tool_calls")
    require(
        calls is None or calls, f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1."
    )
    many = f"Invalid '{where}.tool_calls': array too long. Expected an array with maximum length {MAX_CALLS}"
    require(len(calls or ()) <= MAX_CALLS, f"{many}, but got an array with length {len(calls or ())} instead.")
    without = role == "assistant" and calls
    require(without or content is not None, f"Invalid value for 'content': expected a string, got null ({where}).")
    check_text(f"{where}.content", content)
    if isinstance(content, list):
        require(content, f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
        for at, part in enumerate(content):
            taken = _USER_PARTS if role == "user" else ("text", "refusal")
            kind = part.get("type")
            wrong = (
                f"Image URLs are only allowed for messages with role 'user', but '{where}.content[{at}]' is a {kind}"
            )
            require(kind in taken, f"Invalid '{where}'. {wrong} with role '{role}'.")
            check_text(f"{where}.content[{at}].text", part.get("text"))
    for at, call in enumerate(calls or ()):
        place = f"{where}.tool_calls[{at}]"
        named = isinstance(call.get("id"), str) and call["id"]
        require(named, f"Invalid '{place}.id': empty string. Expected a string with minimum length 1.")
        check_text(f"{place}.id", call["id"], MAX_ID_CHARS)
        function = call["function"]
        require(NAME.fullmatch(function["name"]), f"Invalid '{place}.function.name': string does not match pattern.")
        texts = isinstance(function["arguments"], str)
        require(texts, f"Invalid type for '{place}.function.arguments': expected a string.")
