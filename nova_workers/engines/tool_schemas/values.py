"""Keywords of JSON Schema that have no schema in them: the value of each, if it makes sense."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from nova_workers.engines.tool_schemas.words import as_json

NO_VALUE: Final = object()
"""What a reader returns for a value that makes no sense."""
_MAX_PATTERN_CHARS: Final = 500

Reader = Callable[[Any, Mapping[str, Any]], Any]
"""Returns the value for the new schema from the given one and the schema that it is in."""


def compiles(pattern: str) -> bool:
    """Return whether a regular expression is short and valid."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _of_type(*kinds: type) -> Reader:
    return lambda value, _: value if isinstance(value, kinds) else NO_VALUE


def _as_is(value: Any, _: Mapping[str, Any]) -> Any:
    return value


def _count(value: Any, _: Mapping[str, Any]) -> Any:
    return int(value) if _is_number(value) and value >= 0 and value == int(value) else NO_VALUE


def _number(value: Any, _: Mapping[str, Any]) -> Any:
    return value if _is_number(value) else NO_VALUE


def _divisor(value: Any, _: Mapping[str, Any]) -> Any:
    return value if _is_number(value) and value > 0 else NO_VALUE


def _exclusive(bound: str) -> Reader:
    def read(value: Any, node: Mapping[str, Any]) -> Any:
        # In draft 4 it was a flag beside the other keyword.
        return _number(node.get(bound) if value is True else value, node)

    return read


def _values(value: Any, _: Mapping[str, Any]) -> Any:
    if not isinstance(value, list) or not value:
        return NO_VALUE
    return list({as_json(item): item for item in reversed(value)}.values())[::-1]


def _pattern(value: Any, _: Mapping[str, Any]) -> Any:
    return value if isinstance(value, str) and compiles(value) else NO_VALUE


def _names(value: Any, _: Mapping[str, Any]) -> Any:
    if not isinstance(value, list):
        return NO_VALUE
    return list(dict.fromkeys(name for name in value if isinstance(name, str))) or NO_VALUE


def _names_by_name(value: Any, node: Mapping[str, Any]) -> Any:
    if not isinstance(value, Mapping):
        return NO_VALUE
    read = {key: _names(names, node) for key, names in value.items()}
    return {key: names for key, names in read.items() if names is not NO_VALUE} or NO_VALUE


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


READERS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _of_type(str)),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _of_type(bool)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("minimum", "maximum"), _number),
    "exclusiveMinimum": _exclusive("minimum"),
    "exclusiveMaximum": _exclusive("maximum"),
    "multipleOf": _divisor,
    **dict.fromkeys(("enum", "examples"), _values),
    **dict.fromkeys(("const", "default"), _as_is),
    "pattern": _pattern,
    "required": _names,
    "dependentRequired": _names_by_name,
}
