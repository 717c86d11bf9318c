"""The rules of OpenAI's Responses API, for requests that are stateless."""

from functools import cache
from typing import Any

from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    ResponseFunctionToolCallParam,
    ResponseOutputMessageParam,
    ResponseReasoningItemParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.response_input_param import FunctionCallOutput

from nova_workers.sdk.testing.strict.forms import fields
from nova_workers.sdk.testing.strict.openai_limits import check_images, check_parameters, check_size, check_text
from nova_workers.sdk.testing.strict.openai_tools import NAME, check_answer_schema, check_functions
from nova_workers.sdk.testing.strict.refused import Refused, require

Json = dict[str, Any]

_MAX_ID_CHARS = 64
_STREAMED = frozenset({"stream"})
_OF_CODEX = frozenset({"client_metadata"})
"""A field that the SDK does not know, and that the provider's own program sends."""
_USER_PARTS = ("input_text", "input_image", "input_file")
_ASSISTANT_PARTS = ("output_text", "refusal")


def check_responses(body: Json, size_bytes: int) -> None:
    """Check a request.

    Raises:
        Refused: The provider refuses it.
    """
    check_size(size_bytes)
    check_parameters("", body, fields(ResponseCreateParamsBase)[0] | _STREAMED | _OF_CODEX)
    require(isinstance(body.get("model"), str) and body["model"], "Missing required parameter: 'model'.")
    tools: list[Json] = body.get("tools", [])
    functions = [(f"tools[{at}]", tool) for at, tool in enumerate(tools) if tool.get("type") == "function"]
    for where, tool in functions:
        check_parameters(f"{where}.", tool, fields(FunctionToolParam)[0])
    check_functions(functions)
    answer: Json = body.get("text", {}).get("format", {})
    if answer.get("type") == "json_schema":
        check_answer_schema(answer["schema"])
    given: str | list[Json] = body.get("input") or []
    require(given, "Missing required parameter: 'input'.")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for at, item in enumerate(items):
        _check_item(f"input[{at}]", item, items[at + 1] if at + 1 < len(items) else None)
    _check_calls(items)
    check_images(sum(part.get("type") == "input_image" for item in items for part in _parts(item)))


def _check_calls(items: list[Json]) -> None:
    """Check that each call has one result, after it."""
    calls: list[str] = []
    answered: list[str] = []
    for at, item in enumerate(items):
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


def _parts(item: Json) -> list[Json]:
    """Return the parts of a message, or of the output of a call."""
    content = item.get("content") or item.get("output")
    return content if isinstance(content, list) else []


@cache
def _forms() -> dict[str, frozenset[str]]:
    """Return the fields of items by their type."""
    return {
        "message": fields(EasyInputMessageParam)[0] | fields(ResponseOutputMessageParam)[0],
        "function_call": fields(ResponseFunctionToolCallParam)[0],
        "function_call_output": fields(FunctionCallOutput)[0],
        "reasoning": fields(ResponseReasoningItemParam)[0],
    }


def _check_item(where: str, item: Json, following: Json | None) -> None:
    known = _forms().get(item.get("type", "message"))
    if known is not None:
        check_parameters(f"{where}.", item, known)
    match item.get("type", "message"):
        case "message":
            _check_message(where, item)
        case "function_call":
            require(item["call_id"], f"Invalid '{where}.call_id': empty string.")
            check_text(f"{where}.call_id", item["call_id"], _MAX_ID_CHARS)
            require(NAME.fullmatch(item["name"]), f"Invalid '{where}.name': string does not match pattern.")
            require(isinstance(item["arguments"], str), f"Invalid type for '{where}.arguments': expected a string.")
        case "function_call_output":
            output = item.get("output")
            require(isinstance(output, str | list), f"Missing required parameter: '{where}.output'.")
            check_text(f"{where}.output", output)
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
        check_text(f"{where}.content", content)
        return
    require(content, f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.")
    taken = _ASSISTANT_PARTS if role == "assistant" else _USER_PARTS
    for at, part in enumerate(content or ()):
        values = " and ".join(f"'{kind}'" for kind in taken)
        kind = part.get("type")
        require(kind in taken, f"Invalid value: '{kind}' at '{where}.content[{at}]'. Supported values are: {values}.")
        check_text(f"{where}.content[{at}].text", part.get("text"))
