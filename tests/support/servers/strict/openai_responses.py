"""The rules of OpenAI's Responses API, for requests that are stateless."""

from typing import Any

from nova_workers.sdk.testing.strict.refused import Refused, require
from tests.support.servers.strict.tool_lists import NAME, check_answer_schema, check_functions

Json = dict[str, Any]

_MAX_ID_CHARS = 64
_USER_PARTS = ("input_text", "input_image", "input_file")
_ASSISTANT_PARTS = ("output_text", "refusal")


def check_responses(body: Json) -> None:
    """Check a request.

    Raises:
        Refused: The provider refuses it.
    """
    require(isinstance(body.get("model"), str) and body["model"], "Missing required parameter: 'model'.")
    tools: list[Json] = body.get("tools", [])
    functions = [(f"tools[{at}]", tool) for at, tool in enumerate(tools) if tool.get("type") == "function"]
    check_functions(functions)
    answer: Json = body.get("text", {}).get("format", {})
    if answer.get("type") == "json_schema":
        check_answer_schema(answer["schema"])
    items: list[Json] = body["input"]
    require(items, "Missing required parameter: 'input'.")
    calls: list[str] = []
    answered: list[str] = []
    for at, item in enumerate(items):
        _check_item(f"input[{at}]", item, items[at + 1] if at + 1 < len(items) else None)
        match item.get("type"):
            case "function_call":
                require(item["call_id"] not in calls, f"Duplicate call id {item['call_id']} in input[{at}].")
                calls.append(item["call_id"])
            case "function_call_output":
                known = item["call_id"] in calls
                require(known, f"No tool call found for function call output with call_id {item['call_id']}.")
                once = item["call_id"] not in answered
                require(once, f"Duplicate output for function call {item['call_id']}.")
                answered.append(item["call_id"])
            case _:
                pass
    for call in calls:
        require(call in answered, f"No tool output found for function call {call}.")


def _check_item(where: str, item: Json, following: Json | None) -> None:
    match item.get("type", "message"):
        case "message":
            _check_message(where, item)
        case "function_call":
            fits = 0 < len(item["call_id"]) <= _MAX_ID_CHARS
            require(fits, f"Invalid '{where}.call_id': string too long. Expected at most {_MAX_ID_CHARS} characters.")
            require(NAME.fullmatch(item["name"]), f"Invalid '{where}.name': string does not match pattern.")
            require(isinstance(item["arguments"], str), f"Invalid type for '{where}.arguments': expected a string.")
        case "function_call_output":
            output = item.get("output")
            require(isinstance(output, str | list), f"Missing required parameter: '{where}.output'.")
            for part in output if isinstance(output, list) else ():
                require(part.get("type") in _USER_PARTS, f"Invalid value: '{part.get('type')}' at '{where}.output'.")
        case "reasoning":
            name = item.get("id")
            others = (None, "reasoning", "function_call_output")
            kind = None if following is None else following.get("type", "message")
            alone = kind in others or (kind == "message" and (following or {}).get("role") != "assistant")
            missing = "was provided without its required following item."
            require(not alone, f"Item '{name}' of type 'reasoning' {missing}")
        case _:
            pass


def _check_message(where: str, item: Json) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        raise Refused(f"Invalid value: {role!r} at '{where}.role'.")
    if isinstance(content, str):
        return
    require(content, f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
    taken = _ASSISTANT_PARTS if role == "assistant" else _USER_PARTS
    for at, part in enumerate(content or ()):
        values = " and ".join(f"'{kind}'" for kind in taken)
        kind = part.get("type")
        require(kind in taken, f"Invalid value: '{kind}' at '{where}.content[{at}]'. Supported values are: {values}.")
