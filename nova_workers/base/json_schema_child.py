"""Checks one value against one JSON schema, as a program of its own: both in as JSON, the problems out as JSON.

Apart from the worker, because a schema may need any amount of time and memory. It imports little: 60 ms of CPU.

`nova_workers.base.json_schemas` imports it too, by name, with the first schema of a process: its library is 3 MB.
"""

import json
import os
import resource
import sys
from itertools import islice
from typing import Any, Final

import jsonschema_rs

ValidationError = jsonschema_rs.ValidationError
ReferencingError = jsonschema_rs.ReferencingError

_MAX_MEMORY_BYTES: Final = 1 << 29
_MAX_CPU_S: Final = 3
_MAX_MESSAGE_CHARS: Final = 1_000
LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=1 << 14, dfa_size_limit=1 << 20)
"""At most 3 µs for a character of text (measured; most patterns take a thousandth of it)."""
STEPPED: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 17, dfa_size_limit=1 << 20)
"""For patterns with references back, or looks ahead and behind."""


def compiled(
    schema: dict[str, Any], patterns: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions
) -> jsonschema_rs.Validator:
    """Compile a schema. Nothing that it refers to is fetched.

    Raises:
        ValidationError: It is no schema, or its patterns are not for this engine.
        ReferencingError: It refers to what is not in it.
    """
    return jsonschema_rs.validator_for(schema, pattern_options=patterns, offline=True, validate_formats=False)


def find_problems(
    validator: jsonschema_rs.Validator, value: Any, most: int
) -> list[tuple[tuple[str | int, ...], str, str]]:
    """Return the first problems of a value: each its path, message and keyword, as of a `SchemaProblem`."""
    if validator.is_valid(value):
        return []
    return [
        (tuple(error.instance_path), error.message[:_MAX_MESSAGE_CHARS], error.kind.name)
        for error in islice(validator.iter_errors(value), most)
    ]


def main() -> int:
    """Check what standard input has."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    os.nice(10)
    given = json.loads(sys.stdin.buffer.read())
    problems = find_problems(compiled(given["schema"], STEPPED), given["value"], given["most"])
    sys.stdout.write(json.dumps(problems))
    return 0


if __name__ == "__main__":
    sys.exit(main())
