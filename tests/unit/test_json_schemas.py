"""Schemas from outside are checked in bounded time, and fetch nothing."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from nova_workers.base.json_schemas import InvalidSchema, JsonSchema
from tests.requirements import proves


def _doubling(keyword: str, leaf: dict[str, Any]) -> dict[str, Any]:
    """A schema of 40 steps, each of which refers twice to the one before."""
    steps: dict[str, Any] = {"s0": leaf}
    for step in range(1, 40):
        steps[f"s{step}"] = {keyword: [{"$ref": f"#/$defs/s{step - 1}"}, {"$ref": f"#/$defs/s{step - 1}"}]}
    return {"$defs": steps, "$ref": "#/$defs/s39"}


HOSTILE: tuple[tuple[str, dict[str, Any], Any], ...] = (
    ("a pattern that backtracks", {"pattern": "^(a|a)*$"}, "a" * 50_000 + "b"),
    ("a pattern that backtracks around a look ahead", {"pattern": "^(?=x|a)(a|a)*(?!b)$"}, "a" * 5_000 + "b"),
    ("a pattern with many states", {"pattern": "[ab]*a[ab]{200}c"}, "ab" * 200_000),
    (
        "patterns for each of many names",
        {"patternProperties": {f"a{n}.*b": True for n in range(90)}},
        {f"a{n}": 1 for n in range(20_000)},
    ),
    ("unique items of a large array", {"uniqueItems": True}, [{"a": [n]} for n in range(50_000)]),
    ("unique items in turns", {"uniqueItems": True}, [[n, {"b": str(n)}] for n in range(30_000)]),
    ("references that double", _doubling("allOf", {"type": "integer"}), 1),
    ("references that double and fail", _doubling("anyOf", {"type": "string"}), 1),
    (
        "a recursion that doubles",
        {"anyOf": [{"items": {"$ref": "#"}, "maxItems": 1}] * 2 + [False]},
        [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]],
    ),
)


_OF_A_KIND_THAT_IS_SHOWN = {
    "a pattern that backtracks around a look ahead",
    "patterns for each of many names",
    "unique items in turns",
    "references that double",
}
"""Each takes the child to its bound of CPU; the other patterns, arrays and references show the same bound."""


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(schema, value, id=name, marks=pytest.mark.long if name in _OF_A_KIND_THAT_IS_SHOWN else ())
        for name, schema, value in HOSTILE
    ],
)
@proves("security.schemas")
async def test_a_hostile_schema_holds_the_process_for_a_moment_at_most(schema: dict[str, Any], value: Any) -> None:
    begun_s = time.process_time()
    checked = JsonSchema(schema)
    await checked.problems(value)
    assert time.process_time() - begun_s < 1.0


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"patternProperties": {f"p{n}": True for n in range(101)}}, "patterns"),
        ({"pattern": "a" * 4_001}, "patterns"),
        ({"pattern": "(a{1000}){1000}"}, "regex"),
        ({"enum": list(range(10_001))}, "parts"),
        ({"description": "x" * 200_001}, "longer"),
        ({"type": "wibble"}, "wibble"),
        ({"$ref": "#/$defs/missing"}, "leads nowhere"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "back to itself"),
        ({"$ref": "file:///etc/passwd"}, "another document"),
        ({"$dynamicRef": "http://127.0.0.1/x"}, "another document"),
        ({"$schema": "http://127.0.0.1:1/meta"}, "meta"),
        ({"properties": {"n": {"maximum": 2**64}}}, "cannot be written as JSON"),
        ({"description": "\ud800"}, "cannot be written as JSON"),
    ],
)
@proves("security.schemas")
def test_a_schema_that_is_too_large_or_refers_to_others_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        JsonSchema(schema)


@proves("security.schemas")
def test_a_deep_schema_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(InvalidSchema, match="nests deeper than 64"):
        JsonSchema(deep)


@contextmanager
def _server() -> Generator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema", "$id"])
@proves("security.schemas")
async def test_nothing_is_fetched(keyword: str) -> None:
    with _server() as (url, asked):
        for schema in ({keyword: f"{url}/x"}, {"properties": {"a": {keyword: f"{url}/x"}}}):
            try:
                await JsonSchema(schema).problems({"a": 1})
            except InvalidSchema:
                continue
        assert asked == []


async def test_problems_name_place_keyword_and_reason() -> None:
    schema = {"properties": {"items": {"items": {"type": "integer"}}}, "required": ["name"]}
    found = await JsonSchema(schema).problems({"items": [1, "x"]}, most=5)
    assert {(problem.place, problem.keyword) for problem in found} == {("$.items[1]", "type"), ("$", "required")}
    assert await JsonSchema(schema).problems({"items": [1], "name": ""}) == []


async def test_recursive_schemas_are_checked_by_a_child_process_with_the_same_answers() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["v"]}
    checked = JsonSchema(tree)
    assert await checked.problems({"v": 1, "left": {"v": 2}}) == []
    (problem,) = await checked.problems({"v": 1, "left": {"right": {"v": 1}}})
    assert (problem.place, problem.keyword) == ("$.left", "required")


async def test_looks_ahead_and_references_back_are_supported() -> None:
    checked = JsonSchema({"pattern": r"^(?!no)(.)\1$"})
    assert await checked.problems("aa") == []
    assert len(await checked.problems("ab")) == 1


@pytest.mark.parametrize("value", [{"n": 2**64}, {"text": "\ud800"}])
async def test_a_value_that_cannot_be_written_as_json_is_a_problem(value: Any) -> None:
    (problem,) = await JsonSchema({"type": "object"}).problems(value)
    assert (problem.place, problem.keyword) == ("$", "type")
    assert "cannot be written as JSON" in problem.message
