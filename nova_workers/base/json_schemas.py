"""JSON schemas that callers, agents and servers wrote, and checks of values against them in bounded time.

Beside them, how a value is found in the answer of a model that was to be JSON.

A schema is limited in size, depth and patterns. It refers to parts of itself only; nothing is ever fetched. Regular
expressions have the linear engine, or one that stops after a number of steps. What is left is that a schema may
multiply work, by references to references. So a value is checked here if the schema is not recursive and the product of
both sizes is small, which is the case for nearly all: 0.1 ms. Any other check runs in a child process with limits on
time and memory: 80 ms.
"""

import asyncio
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import orjson

from nova_workers.base.child_process import Bounds, run_child

_MAX_SCHEMA_BYTES: Final = 200_000
_MAX_DEPTH: Final = 64
_WHY_CHARS: Final = 200
_MAX_NODES: Final = 10_000
_MAX_PATTERNS: Final = 100
_MAX_PATTERN_CHARS: Final = 4_000
"""The limit of all patterns of a schema: compiling 100 near the limit of size takes 0.2 s."""
_PATTERN_WEIGHT: Final = 100
_WORK_HERE: Final = 2_000_000
"""Weight of a schema times bytes of a value: 50 ms of CPU at worst."""
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_CHECKS: Final = "nova_workers.base.json_schema_child"
"""Imported by name with the first schema, which takes 10 ms: most processes get none."""
_COMMAND: Final = (sys.executable, "-I", "-B", str(Path(__file__).with_name("json_schema_child.py")))
_CHILD: Final = Bounds(10.0, 1_000_000)
_CHILDREN: Final = 2
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""All schemas of a process share its children, and a semaphore belongs to a loop."""


_FENCE: Final = re.compile(r"```[A-Za-z0-9]{0,20}[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_MOST_STARTS: Final = 50
"""Places in a text at which a value is looked for: each may read to its end."""
_MOST_FOUND: Final = 5


class SchemaProblem(NamedTuple):
    """Why a value does not fulfil a schema.

    Attributes:
        path: Where in the value.
        message: What is wrong there, which may quote the value.
        keyword: The keyword of the schema that requires something else.
    """

    path: tuple[str | int, ...]
    message: str
    keyword: str

    @property
    def place(self) -> str:
        """The path as a text, as in ``$.items[0]``."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)


class InvalidSchema(ValueError):
    """It is no JSON schema, or one that is not accepted.

    Attributes:
        path: Where in the schema.
        why: What is wrong.
    """

    def __init__(self, why: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


class JsonSchema:
    """A schema that was accepted. Keeps nothing of the values that it checks."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Compile the schema, in at most 0.3 s.

        Raises:
            InvalidSchema: It is no JSON schema, too large, or refers to anything outside itself.
        """
        self._schema = dict(schema)
        _check_bounds(self._schema)
        _check_references(self._schema)
        self._weight = _Weights(self._schema).whole()
        self._checks = checks = import_module(_CHECKS)
        try:
            try:
                self._validator = checks.compiled(self._schema, checks.LINEAR)
            except checks.ValidationError:
                self._weight = math.inf
                self._validator = _stepped(self._schema, checks)
        except checks.ReferencingError as error:
            raise InvalidSchema(error.message) from error

    async def problems(self, value: Any, most: int = 1) -> list[SchemaProblem]:
        """Return why a value, of the types of JSON, does not fulfil the schema: at most `most` reasons, or none."""
        try:
            text = orjson.dumps(value)
        except TypeError as error:
            return [SchemaProblem((), f"it cannot be written as JSON: {error}", "type")]
        if self._weight * len(text) <= _WORK_HERE:
            return [SchemaProblem(*found) for found in self._checks.find_problems(self._validator, value, most)]
        gate = _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_CHILDREN))
        async with gate:
            given = b'{"schema":%b,"value":%b,"most":%d}' % (orjson.dumps(self._schema), text, most)
            done = await run_child(_COMMAND, _CHILD, env={"PATH": os.defpath}, given=given)
        if done.exit_code != 0:
            return [SchemaProblem((), "it takes too much time or memory to check", "$schema")]
        return [SchemaProblem(tuple(path), message, keyword) for path, message, keyword in orjson.loads(done.head)]


class LinearPattern:
    """A regular expression of a JSON schema that is searched in time linear in the text: at most 3 µs a character."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern.

        Raises:
            InvalidSchema: It is none, too large, or has references back or looks ahead or behind.
        """
        checks = import_module(_CHECKS)
        try:
            self._validator = checks.compiled({"type": "string", "pattern": pattern}, checks.LINEAR)
        except checks.ValidationError as error:
            raise InvalidSchema(error.message[:_WHY_CHARS]) from error

    def occurs_in(self, text: str) -> bool:
        """Return whether it occurs anywhere in a text."""
        return self._validator.is_valid(text)


def schema_problem(schema: Mapping[str, Any], place: str) -> tuple[str, str] | None:
    """Return where the first error of a schema is, below its own place, and what is wrong; None without an error."""
    try:
        JsonSchema(schema)
    except InvalidSchema as error:
        return ".".join([place, *map(str, error.path)]), f"it is no JSON schema: {error.why[:_WHY_CHARS]}"
    return None


def _check_bounds(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose compilation would be felt. Only then may anything go through it by recursion."""
    nodes = patterns = pattern_chars = 0
    level: list[Any] = [schema]
    for _ in range(_MAX_DEPTH):
        following: list[Any] = []
        for node in level:
            if isinstance(node, Mapping):
                texts = _patterns(node)
                patterns += len(texts)
                pattern_chars += sum(map(len, texts))
            following += node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
        nodes += len(following)
        if nodes > _MAX_NODES:
            raise InvalidSchema(f"it has more than {_MAX_NODES} parts")
        level = following
    if level:
        raise InvalidSchema(f"it nests deeper than {_MAX_DEPTH} levels")
    if patterns > _MAX_PATTERNS or pattern_chars > _MAX_PATTERN_CHARS:
        raise InvalidSchema(
            f"its patterns are more than {_MAX_PATTERNS}, or longer than {_MAX_PATTERN_CHARS} characters together"
        )
    try:
        size_bytes = len(orjson.dumps(schema))
    except TypeError as error:
        # An integer beyond 64 bits, or a lone surrogate.
        raise InvalidSchema(f"it cannot be written as JSON: {error}") from error
    if size_bytes > _MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it is longer than {_MAX_SCHEMA_BYTES} bytes as JSON")


def _patterns(node: Mapping[str, Any]) -> list[str]:
    single, several = node.get("pattern"), node.get("patternProperties")
    found = [single] if isinstance(single, str) else []
    return found + (list(several) if isinstance(several, Mapping) else [])


class _Weights:
    """How many parts of a schema may apply to one value, with references followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._of_reference: dict[str, float] = {}

    def whole(self) -> float:
        """Return the weight of the schema; infinite if it is recursive."""
        return self._of(self._root, 0)

    def _of(self, node: Any, depth: int) -> float:
        if depth > 4 * _MAX_DEPTH:
            return math.inf
        if isinstance(node, list):
            return 1 + sum(self._of(part, depth + 1) for part in node)
        if not isinstance(node, Mapping):
            return 1
        weight = 1 + sum(self._of(part, depth + 1) for part in node.values())
        weight += _PATTERN_WEIGHT * len(_patterns(node))
        refs = (node.get(keyword) for keyword in _REFERENCES)
        return weight + sum(self._referred(ref, depth) for ref in refs if isinstance(ref, str))

    def _referred(self, ref: str, depth: int) -> float:
        if ref not in self._of_reference:
            # What it finds of itself on the way makes it recursive.
            self._of_reference[ref] = math.inf
            part = _part_of(self._root, ref) if ref.startswith("#/") else None
            self._of_reference[ref] = math.inf if part is None else self._of(part, depth + 1)
        return self._of_reference[ref]


def _check_references(schema: Mapping[str, Any]) -> None:
    refs = list(_references(schema))
    if any(not ref.startswith("#") for ref in refs):
        raise InvalidSchema("it refers to another document; `$ref` may only refer to a part of the same schema")
    if not all(_ends(schema, ref) for ref in refs):
        raise InvalidSchema("a `$ref` leads nowhere, or back to itself; write it as a path, such as #/$defs/name")


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _REFERENCES and isinstance(inner, str):
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _ends(schema: Mapping[str, Any], ref: str) -> bool:
    """Return whether a reference leads to a part of the schema, also if that is a reference again."""
    seen: set[str] = set()
    while ref not in seen:
        seen.add(ref)
        found = _part_of(schema, ref)
        if not isinstance(found, Mapping):
            # The schemas true and false.
            return isinstance(found, bool)
        following = found.get("$ref")
        if following is None:
            return True
        ref = str(following)
    return False


def _part_of(schema: Any, ref: str) -> Any:
    """Return the part of a schema that a JSON pointer names, such as ``#/$defs/name``; None if there is none."""
    steps = ref.removeprefix("#").split("/")
    if steps[0]:
        return None
    for step in steps[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping):
            schema = schema.get(name)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return None
    return schema


def _stepped(schema: dict[str, Any], checks: Any) -> Any:
    try:
        return checks.compiled(schema, checks.STEPPED)
    except checks.ValidationError as error:
        raise InvalidSchema(error.message, tuple(error.instance_path)) from error


def json_in(answer: str) -> Sequence[Any]:
    """Return the JSON values that an answer may mean, the likeliest first: the whole, what is in fences, the objects.

    Of several the last comes first: models write their final version last.

    Raises:
        orjson.JSONDecodeError: There is none. It is that of the whole answer.
    """
    try:
        return [orjson.loads(answer)]
    except orjson.JSONDecodeError:
        found = [*_fenced(answer), *_embedded(answer)]
        if not found:
            raise
        return found


def _fenced(answer: str) -> Iterator[Any]:
    for fenced in reversed(_FENCE.findall(answer)[-_MOST_FOUND:]):
        try:
            yield orjson.loads(fenced)
        except orjson.JSONDecodeError:
            continue


def _embedded(answer: str) -> list[Any]:
    """Return the outermost objects of a text, the last first."""
    found: list[Any] = []
    at = answer.find("{")
    for _ in range(_MOST_STARTS):
        if at < 0:
            break
        end = _end_of_object(answer, at)
        if end > at:
            try:
                found.append(orjson.loads(answer[at:end]))
            except orjson.JSONDecodeError:
                end = at
        at = answer.find("{", max(end, at + 1))
    return found[: -_MOST_FOUND - 1 : -1]


def _end_of_object(text: str, at: int) -> int:
    """Return where an object ends that begins here; `at` if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return at
