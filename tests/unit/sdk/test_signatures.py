"""Functions as tools: what models read of them, and which functions cannot be tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from nova_workers.base.errors import ConfigurationError, ToolFailure
from nova_workers.sdk import ToolContext, tool
from nova_workers.sdk.declaration import ToolOptions, options_of
from nova_workers.sdk.signatures import FunctionTool


class Address(BaseModel):
    city: str


@dataclass
class Parcel:
    weight_kg: float


@tool
def ship(
    parcel: Parcel,
    to: Address,
    context: ToolContext,
    speed: Literal["fast", "cheap"] = "cheap",
    schema: str | None = None,
) -> str:
    """Ship a parcel.

    It leaves today.

    Args:
        parcel: What to ship,
            in kilograms.
        to (Address): Where to.
        schema: A name that pydantic
            keeps for itself.

    Returns:
        A number.
    """
    return f"{parcel.weight_kg} kg to {to.city}, {speed}, {context.agent_id}, {schema}"


def _tool(function: Callable[..., Any], **options: Any) -> FunctionTool:
    return FunctionTool.of(function, ToolOptions(**options))


def test_types_and_docstring_become_schema_and_descriptions() -> None:
    made = _tool(ship)
    assert (made.name, made.description, made.is_async) == ("ship", "Ship a parcel.\n\nIt leaves today.", False)
    assert made.input_schema == snapshot(
        {
            "$defs": {
                "Address": {
                    "properties": {"city": {"title": "City", "type": "string"}},
                    "required": ["city"],
                    "title": "Address",
                    "type": "object",
                },
                "Parcel": {
                    "properties": {"weight_kg": {"title": "Weight Kg", "type": "number"}},
                    "required": ["weight_kg"],
                    "title": "Parcel",
                    "type": "object",
                },
            },
            "additionalProperties": False,
            "properties": {
                "parcel": {"$ref": "#/$defs/Parcel", "description": "What to ship, in kilograms."},
                "to": {"$ref": "#/$defs/Address", "description": "Where to."},
                "speed": {"default": "cheap", "enum": ["fast", "cheap"], "type": "string"},
                "schema": {
                    "anyOf": [{"type": "string"}, {"type": "null"}],
                    "default": None,
                    "description": "A name that pydantic keeps for itself.",
                },
            },
            "required": ["parcel", "to"],
            "type": "object",
        }
    )


def test_a_call_gets_values_of_its_types_and_the_context() -> None:
    made = _tool(ship)
    given = {"parcel": {"weight_kg": 2}, "to": {"city": "Oslo"}, "schema": "s"}
    arguments = made.arguments(given, ToolContext(agent_id="clerk"))
    assert ship(**arguments) == "2.0 kg to Oslo, cheap, clerk, s"


def test_wrong_input_is_refused_with_each_part_that_is_wrong() -> None:
    with pytest.raises(ToolFailure, match=r"ship .*to: Field required; .*sped: Extra inputs are not permitted"):
        _tool(ship).arguments({"parcel": {"weight_kg": 2}, "sped": "fast"}, ToolContext())


def test_a_declared_function_stays_a_function_with_its_options() -> None:
    @tool(name="other", idempotent=True, needs_approval=True, timeout_s=5, concurrency=2)
    def plain() -> str:
        """Be plain."""
        return "x"

    assert plain() == "x"
    assert options_of(plain) == ToolOptions("other", idempotent=True, needs_approval=True, timeout_s=5, concurrency=2)


def _no_docstring(x: int) -> int:
    return x


def _no_type(x: int) -> None:
    """Do it."""


del _no_type.__annotations__["x"]


def _socket(x: Callable[[], int]) -> None:
    """Do it."""


class _Thing:
    pass


def _unknown_type(x: _Thing) -> None:
    """Do it."""


def _variable(*x: int) -> None:
    """Do it."""


def _unreadable(x: Missing) -> None:  # noqa: F821 - the subject  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
    """Do it."""


def _two(one: ToolContext, two: ToolContext) -> None:
    """Do it."""


def _described(x: int) -> None:
    """Do it.

    Args:
        y: What it does not take.
    """


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        (_no_docstring, {}, "it has no docstring; expected one that tells the model what the tool does"),
        (_no_type, {}, "the parameter 'x' has no type; expected one such as 'x: str'"),
        (_socket, {}, "its input has no JSON schema"),
        (_unknown_type, {}, "the parameter 'x' has the type _Thing, which JSON cannot express; expected str"),
        (_variable, {}, "the parameter 'x' is not passed by name"),
        (_unreadable, {}, "its annotations cannot be read (name 'Missing' is not defined)"),
        (_two, {}, "one and two are contexts; expected at most one ToolContext"),
        (_described, {}, "its docstring describes y, which it does not take"),
        (_described, {"name": "a b"}, "'a b' is no name of a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_its_place(
    function: Callable[..., Any], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _tool(function, **options)
    place = f"{Path(__file__)}:{function.__code__.co_firstlineno}: the tool {function.__name__!r}: "
    assert caught.value.message.startswith(place)
    assert expected in caught.value.message


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": 5_000}, {"concurrency": 0}])
def test_an_option_out_of_range_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"test_signatures\.py:\d+: the tool '_no_docstring': .* expected"):
        tool(**options)(_no_docstring)


def test_a_class_is_no_tool() -> None:
    with pytest.raises(ConfigurationError, match="is no function"):
        tool(_Thing)


def test_a_context_that_a_test_makes_has_secrets_and_a_key() -> None:
    context = ToolContext(secrets={"TOKEN": "abc"})
    assert (context.secret("TOKEN"), context.aborted) == ("abc", False)
    assert context.idempotency_key != ToolContext().idempotency_key
    with pytest.raises(ToolFailure, match=r'"secrets": \["OTHER"\]'):
        context.secret("OTHER")
    context.abort()
    assert context.aborted
