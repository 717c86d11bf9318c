"""The rules of Google's Gemini API."""

import re
from typing import Any

from nova_workers.sdk.testing.strict.refused import Refused

Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_MAX_FUNCTIONS = 512


def check_gemini(body: Json) -> None:
    """Check a request.

    Raises:
        Refused: The provider refuses it.
    """
    contents: list[Json] = body.get("contents") or []
    _require(contents, "contents is not specified")
    functions = [function for tool in body.get("tools") or () for function in tool.get("functionDeclarations") or ()]
    _require(len(functions) <= _MAX_FUNCTIONS, f"at most {_MAX_FUNCTIONS} function declarations are supported")
    names = [function.get("name", "") for function in functions]
    _require(len(names) == len(set(names)), "Duplicate function declaration found")
    for at, function in enumerate(functions):
        invalid = "Invalid function name. Must start with a letter or an underscore."
        _require(_NAME.fullmatch(names[at]), f"tools[0].function_declarations[{at}].name: {invalid}")
        schema = function.get("parametersJsonSchema") or function.get("parameters") or {"type": "object"}
        is_object = str(schema.get("type")).lower() == "object"
        _require(is_object, f"tools[0].function_declarations[{at}].parameters: must be of type OBJECT")
    open_calls = 0
    for at, content in enumerate(contents):
        parts: list[Json] = content.get("parts") or []
        _require(parts, f"contents[{at}].parts: must not be empty")
        _require(content.get("role") in ("user", "model"), f"contents[{at}]: Please use a valid role: user, model.")
        answers = sum("functionResponse" in part for part in parts)
        equal = "Please ensure that the number of function response parts is equal to the number of function call parts"
        _require(answers == open_calls, f"{equal} of the function call turn.")
        open_calls = sum("functionCall" in part for part in parts)
    _require(not open_calls, "Please ensure that function call turn is followed by a function response turn.")


def _require(fulfilled: object, message: str) -> None:
    if not fulfilled:
        raise Refused(message, type="INVALID_ARGUMENT")
