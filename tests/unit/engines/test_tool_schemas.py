"""Schemas of tools become such as every provider takes, and calls get back to the tool with its own keys."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from nova_workers.contracts.content import storable_json
from nova_workers.engines.tool_schemas import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    ToolLimits,
    Unrepairable,
    refused_tool,
    repaired,
    schema_problem,
)
from tests.requirements import proves
from tests.support.servers.strict import refusal_of

Json = dict[str, Any]

PROVIDERS = (ANTHROPIC, OPENAI, GEMINI)
STRING, INTEGER = {"type": "string"}, {"type": "integer"}

_KEYS = st.sampled_from(["a", "b", "user id", "naïve", "", "$filter", "x" * 70, "名前", "_"])
_NAMES = st.sampled_from(["string", "integer", "object", "array", "String", "null", "any", "int", ""])
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    _NAMES,
    st.just("#"),
    st.just("#/$defs/a"),
)
_KEYWORDS = st.sampled_from(
    "type properties required items anyOf oneOf allOf not enum const $ref $defs additionalProperties pattern minimum "
    "exclusiveMinimum minItems nullable default if then patternProperties dependentRequired prefixItems description "
    "format x-own".split()
)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_KEYWORDS, inner, max_size=5),
        st.dictionaries(_KEYS, inner, max_size=3),
    ),
    max_leaves=25,
)


def _object_of(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(_KEYS, inner, max_size=4),
            "required": st.lists(_KEYS, max_size=1),
        }
    )


_VALID: st.SearchStrategy[Json] = st.recursive(
    st.one_of(
        st.fixed_dictionaries({}),
        st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "boolean", "array", "object"])}),
        st.fixed_dictionaries({"type": st.just(["string", "null"])}),
        st.fixed_dictionaries({"const": st.sampled_from([1, "x", None])}),
    ),
    lambda inner: st.one_of(
        _object_of(inner),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1)}),
    ),
    max_leaves=8,
)
_VALUES = st.recursive(
    st.sampled_from([None, 1, "x", True]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=6,
)


def _refusals(schema: Json) -> list[str]:
    """Return why the real providers would refuse a tool with the schema."""
    function = {"name": "tool", "description": "", "parameters": schema}
    user = [{"role": "user", "content": "hi"}]
    requests: list[tuple[str, Json]] = [
        (
            "/v1/messages",
            {"model": "m", "max_tokens": 1, "messages": user, "tools": [{"name": "tool", "input_schema": schema}]},
        ),
        ("/chat/completions", {"model": "m", "messages": user, "tools": [{"type": "function", "function": function}]}),
        ("/responses", {"model": "m", "input": user, "tools": [{"type": "function", **function}]}),
        (
            "/m:streamGenerateContent",
            {
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
                "tools": [{"functionDeclarations": [{"name": "tool", "parametersJsonSchema": schema}]}],
            },
        ),
    ]
    found = [refusal_of(path, {}, body, 1) for path, body in requests]
    return [refusal.message for refusal in found if refusal is not None]


@given(_ANYTHING)
@proves("engine.tool-schemas")
def test_whatever_a_server_declares_becomes_what_every_provider_takes(schema: Any) -> None:
    for limits in PROVIDERS:
        try:
            found = repaired(schema, limits)
        except Unrepairable:
            continue
        assert schema_problem(found.schema, limits) is None
        assert _refusals(found.schema) == []


@given(_object_of(_VALID), st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_arguments_that_the_tool_takes_are_possible_and_get_back_with_its_own_keys(schema: Json, given: Json) -> None:
    if not Draft202012Validator(schema).is_valid(given):
        return
    found = repaired(schema, ANTHROPIC)
    wire_keys = {own: wire for wire, own in found.own_keys.items()}
    wire = {wire_keys.get(key, key): value for key, value in given.items()}
    assert found.arguments(wire) == given
    assert Draft202012Validator(found.schema).is_valid(wire)


@pytest.mark.parametrize(
    ("schema", "properties"),
    [
        (None, {}),
        (True, {}),
        ({"type": None}, {}),
        ({"type": "Object", "properties": []}, {}),
        ({"type": ["object", "null"], "properties": {"a": STRING}}, {"a": STRING}),
        ({"properties": {"a": {"type": "INT"}}}, {"a": INTEGER}),
        ({"properties": [{"name": "a", "type": "string", "required": True}]}, {"a": STRING}),
        ({"properties": {"a": True, "b": 5}}, {"a": {}, "b": {}}),
        ({"properties": {"a": {"type": "array"}}}, {"a": {"type": "array", "items": {}}}),
        (
            {"properties": {"a": {"items": [STRING, INTEGER]}}},
            {"a": {"type": "array", "prefixItems": [STRING, INTEGER], "items": {}}},
        ),
        (
            {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
            {"a": {"type": "number", "minimum": 1, "exclusiveMinimum": 1}},
        ),
        ({"properties": {"a": {"type": "string", "pattern": "(", "x-own": 1}}}, {"a": STRING}),
        ({"$ref": "#/$defs/in", "$defs": {"in": {"properties": {"a": STRING}}}}, {"a": STRING}),
        ({"properties": {"a": {"$ref": "https://example.org/other.json"}}}, {"a": {}}),
        (
            {"properties": {"a": {"$ref": "#"}}},
            {"a": {"type": "object", "properties": {"a": {}}}},
        ),
    ],
)
def test_odd_schemas_keep_what_can_be_understood(schema: Any, properties: Json) -> None:
    assert repaired(schema, ANTHROPIC).schema["properties"] == properties


def test_alternatives_at_the_top_become_one_object() -> None:
    found = repaired(
        {
            "description": "Finds.",
            "oneOf": [
                {"properties": {"by": {"const": "id"}, "id": STRING}, "required": ["by", "id"]},
                {"properties": {"by": {"const": "name"}, "name": STRING}, "required": ["by"]},
            ],
            "allOf": [{"properties": {"limit": INTEGER}, "required": ["limit"]}],
        },
        ANTHROPIC,
    ).schema
    assert found["required"] == ["limit", "by"]
    assert found["properties"] == {
        "limit": INTEGER,
        "by": {"anyOf": [{"const": "id", "type": "string"}, {"const": "name", "type": "string"}]},
        "id": STRING,
        "name": STRING,
    }
    assert found["description"] == (
        'Finds. Give the arguments of one of these forms: by = "id", id; by = "name", name?.'
    )


def test_that_one_of_several_is_required_is_put_into_words() -> None:
    one_of_two = [{"required": ["a"]}, {"required": ["b"]}]
    schema = {"type": "object", "properties": {"a": STRING, "b": STRING}, "anyOf": one_of_two}
    found = repaired(schema, OPENAI).schema
    assert (found["properties"], found.get("required")) == ({"a": STRING, "b": STRING}, None)
    assert found["description"] == "Give the arguments of one of these forms: a; b."


def test_a_condition_at_the_top_is_put_into_words() -> None:
    schema = {"properties": {"a": STRING}, "if": {"required": ["a"]}, "then": {"properties": {"b": STRING}}}
    found = repaired(schema, OPENAI).schema
    assert found["properties"] == {"a": STRING, "b": STRING}
    assert '"if":{"properties":{"a":{}},"required":["a"],"type":"object"}' in found["description"]


def test_keys_that_providers_refuse_are_renamed_without_a_collision() -> None:
    own = ["user id", "user_id", "user$id", "名前", "x" * 70]
    found = repaired({"properties": dict.fromkeys(own, STRING), "required": ["user id"]}, ANTHROPIC)
    wire = list(found.schema["properties"])
    assert wire == ["argument", "user_id_2", "user_id_3", "user_id", "x" * 64], "In the order that jsonb keeps."
    assert found.schema["required"] == ["user_id_2"]
    assert "'user id'" in found.schema["properties"]["user_id_2"]["description"]
    in_order = ("名前", "user id", "user$id", "user_id", "x" * 70)
    assert found.arguments(dict(zip(wire, range(5), strict=True))) == dict(zip(in_order, range(5), strict=True))


def test_a_schema_that_is_too_large_or_too_deep_is_cut_and_not_left_out() -> None:
    deep: Json = STRING
    for _ in range(100):
        deep = {"type": "object", "properties": {"a": deep}}
    for limits in PROVIDERS:
        assert schema_problem(repaired(deep, limits).schema, limits) is None
    words = {"type": "object", "properties": {"a": {"type": "string", "examples": ["x" * 70_000]}}}
    assert repaired(words, ANTHROPIC).schema["properties"] == {"a": STRING}
    multiplied = {
        "$defs": {
            "a0": STRING,
            **{
                f"a{n}": {"properties": {str(k): {"$ref": f"#/$defs/a{n - 1}"} for k in range(9)}} for n in range(1, 12)
            },
        },
        "$ref": "#/$defs/a11",
    }
    assert len(orjson.dumps(repaired(multiplied, ANTHROPIC).schema)) <= ANTHROPIC.max_schema_bytes


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "not an object"),
        ({"anyOf": [STRING, {"type": "array"}]}, "not an object"),
        ({"properties": {f"a{at}": {"description": "x" * 100} for at in range(10_000)}}, "longer than 64000 bytes"),
    ],
)
def test_what_cannot_be_repaired_is_refused_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(Unrepairable, match=why):
        repaired(schema, ANTHROPIC)


def test_a_plain_schema_has_one_type_a_value_and_known_keywords() -> None:
    schema = {
        "properties": {
            "a": {"type": ["string", "null"], "format": "uri"},
            "b": {"anyOf": [INTEGER, {"type": "null"}], "default": None},
            "c": {"oneOf": [STRING, INTEGER]},
            "d": {"const": 3},
            "e": {},
        },
        "additionalProperties": False,
    }
    found = repaired(schema, GEMINI).schema
    assert found == {
        "type": "object",
        "properties": {
            "a": STRING,
            "b": INTEGER,
            "c": {"anyOf": [STRING, INTEGER]},
            "d": {"description": "One of [3].", **found["properties"]["e"]},
            "e": {"anyOf": [STRING, {"type": "number"}, {"type": "boolean"}, {"type": "object"}]},
        },
    }


@pytest.mark.parametrize(
    ("message", "tool"),
    [
        ("tools.1.custom.input_schema: JSON schema is invalid", "b"),
        ("The provider answered 400: tools.0.custom.name: String should match pattern", "a"),
        ("Invalid 'tools[1].function.description': string too long.", "b"),
        ("Invalid schema for function 'b': schema must have type 'object'", "b"),
        ("GenerateContentRequest.tools[0].function_declarations[1].parameters.properties: empty", "b"),
        ("tools.7.custom.input_schema: no", None),
        ("Invalid schema for function 'other': no", None),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", None),
    ],
)
def test_the_tool_that_a_provider_blames_is_found(message: str, tool: str | None) -> None:
    assert refused_tool(message, ["a", "b"]) == tool


def test_the_draft_of_the_tests_is_one() -> None:
    """A schema that is not valid would prove nothing of those that are."""
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(storable_json({"type": "text"}))
    assert schema_problem({"type": "object"}, ToolLimits()) == "it has no properties"
