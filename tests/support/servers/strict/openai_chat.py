"""The rules of OpenAI for chat completions."""

from typing import Any

from nova_workers.sdk.testing.strict.refused import Refused, require
from tests.support.servers.strict.tool_lists import NAME, check_answer_schema, check_functions

Json = dict[str, Any]

_MAX_ID_CHARS = 64
_USER_PARTS = ("text", "image_url", "input_audio", "file")


def check_chat(body: Json) -> None:
    """Check a request.

    Raises:
        Refused: The provider refuses it.
    """
    require(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    messages: list[Json] = body.get("messages") or []
    require(messages, "Invalid 'messages': empty array. Expected an array with minimum length 1.")
    tools: list[Json] = body.get("tools", [])
    require(tools or "tools" not in body, "Invalid 'tools': empty array. Expected an array with minimum length 1.")
    check_functions([(f"tools[{at}].function", tool["function"]) for at, tool in enumerate(tools)])
    require(tools or "tool_choice" not in body, "'tool_choice' is only allowed when 'tools' are specified.")
    require(
        tools or "parallel_tool_calls" not in body, "'parallel_tool_calls' is only allowed when 'tools' are specified."
    )
    answer: Json = body.get("response_format", {})
    if answer.get("type") == "json_schema":
        check_answer_schema(answer["json_schema"]["schema"])
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
        _check_message(f"messages[{at}]", message)
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
    without = role == "assistant" and calls
    require(without or content is not None, f"Invalid value for 'content': expected a string, got null ({where}).")
    if isinstance(content, list):
        require(content, f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
        for at, part in enumerate(content):
            taken = _USER_PARTS if role == "user" else ("text", "refusal")
            kind = part.get("type")
            wrong = (
                f"Image URLs are only allowed for messages with role 'user', but '{where}.content[{at}]' is a {kind}"
            )
            require(kind in taken, f"Invalid '{where}'. {wrong} with role '{role}'.")
    for at, call in enumerate(calls or ()):
        place = f"{where}.tool_calls[{at}]"
        fits = isinstance(call.get("id"), str) and 0 < len(call["id"]) <= _MAX_ID_CHARS
        require(fits, f"Invalid '{place}.id': string too long or empty. Expected at most {_MAX_ID_CHARS} characters.")
        function = call["function"]
        require(NAME.fullmatch(function["name"]), f"Invalid '{place}.function.name': string does not match pattern.")
        texts = isinstance(function["arguments"], str)
        require(texts, f"Invalid type for '{place}.function.arguments': expected a string.")
