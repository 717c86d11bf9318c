"""The rules of OpenAI for functions, which chat completions and the Responses API share."""

import re
from typing import Any

from jsonschema_rs import ValidationError, meta

from nova_workers.sdk.testing.strict.refused import Refused, require

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_FUNCTIONS = 128
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOT_AT_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")


def check_functions(functions: list[tuple[str, Json]]) -> None:
    """Check the functions of a request.

    Args:
        functions: Each with its place in the request.

    Raises:
        Refused: The provider refuses one of them.
    """
    long = f"Invalid 'tools': array too long. Expected an array with maximum length {_MAX_FUNCTIONS}"
    require(len(functions) <= _MAX_FUNCTIONS, long)
    names = [function.get("name") for _, function in functions]
    require(len(names) == len(set(names)), "Invalid 'tools': tool names must be unique.")
    for where, function in functions:
        name, schema = function.get("name"), function.get("parameters", {})
        fits = isinstance(name, str) and NAME.fullmatch(name)
        pattern = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' of at most 64 characters."
        require(fits, f"Invalid '{where}.name': string does not match pattern. {pattern}")
        strings = isinstance(function.get("description", ""), str)
        require(strings, f"Invalid type for '{where}.description': expected a string.")
        _check_schema(name or "", schema)


def check_answer_schema(schema: Any) -> None:
    """Check the schema of a structured answer.

    Raises:
        Refused: The provider refuses it.
    """
    kind = schema.get("type")
    wanted = "schema must be a JSON Schema of 'type: \"object\"'"
    require(kind == "object", f"Invalid schema for response_format 'answer': {wanted}, got 'type: \"{kind}\"'.")
    top = next((keyword for keyword in _NOT_AT_TOP if keyword in schema), None)
    require(top is None, f"Invalid schema for response_format 'answer': In context=(), '{top}' is not permitted.")


def _check_schema(name: str, schema: Any) -> None:
    invalid = f"Invalid schema for function '{name}'"
    require(isinstance(schema, dict), f"{invalid}: {schema!r} is not of type 'object'.")
    kind = schema.get("type")
    require(kind == "object", f"{invalid}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'.")
    tops = (
        f"{invalid}: schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    )
    require(not any(keyword in schema for keyword in _NOT_AT_TOP), tops)
    try:
        meta.validate({**schema, "$schema": _DIALECT})
    except ValidationError as error:
        raise Refused(f"{invalid}: {error.message}", code="invalid_function_parameters") from None
    require("properties" in schema, f"{invalid}: In context=(), object schema missing properties.")
    _check_arrays(invalid, schema, ())


def _check_arrays(invalid: str, node: Any, context: tuple[str, ...]) -> None:
    if isinstance(node, list):
        for at, item in enumerate(node):
            _check_arrays(invalid, item, (*context, str(at)))
    if not isinstance(node, dict):
        return
    kinds = node.get("type")
    has_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    require(not has_array or "items" in node, f"{invalid}: In context={context!r}, array schema missing items.")
    for keyword in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
        _check_arrays(invalid, node.get(keyword), (*context, keyword))
    for keyword in ("properties", "$defs"):
        for key, item in node.get(keyword, {}).items():
            _check_arrays(invalid, item, (*context, keyword, key))
