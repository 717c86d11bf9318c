"""Requests and configurations have true booleans, neither ``"no"`` nor 1, and true numbers: ``true`` is not 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from api.app import build_app
from api.late_modules import load_all
from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings, Section
from nova_workers.contracts.http.triggers import TriggerPatch
from nova_workers.contracts.http.wire import AgentReplace
from nova_workers.contracts.orders import PolicyDocument
from nova_workers.domain.capabilities.rules.discovery import MODULES
from nova_workers.domain.capabilities.rules.seam import ToolInput
from nova_workers.domain.orchestrations.rules.config.values import EngineConfig, ModelsDocument, OrchestrationConfig

_BOOLEANS = frozenset({"bool"})
_NUMBERS = frozenset({"int", "float"})
_NO_PARTS = frozenset({"config", "metadata", "serialization", "default"})


def _lax(
    schema: Any, kinds: frozenset[str], path: str = "", parts: Mapping[str, Any] = {}, *, strict: bool = False
) -> Iterator[str]:
    """Yield where a core schema of pydantic accepts other values as these kinds. A check before one is trusted."""
    match schema:
        case {"type": "definitions", "schema": inner, "definitions": definitions}:
            named = {**parts, **{each["ref"]: each for each in definitions}}
            yield from _lax(inner, kinds, path, named, strict=strict)
        case {"type": "definition-ref", "schema_ref": str(name)} if name in parts:
            others = {key: part for key, part in parts.items() if key != name}
            yield from _lax(parts[name], kinds, path, others, strict=strict)
        case {"type": str(kind)} if kind in kinds and not schema.get("strict", strict):
            yield path
        case {"type": "function-before", "schema": {"type": str(kind)}} if kind in kinds:
            pass
        case {"type": "model"}:
            inner_strict = schema.get("config", {}).get("strict", strict)
            yield from _lax(schema["schema"], kinds, path, parts, strict=inner_strict)
        case Mapping() | list() | tuple():
            for key, inner in _inside(schema):
                yield from _lax(inner, kinds, f"{path}{key}", parts, strict=strict)
        case _:
            pass


def _inside(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, Mapping):
        return ((f".{key}", part) for key, part in schema.items() if key not in _NO_PARTS)
    return (("", part) for part in schema)


def _schema(model: Any) -> Any:
    return TypeAdapter(model).core_schema


@pytest.fixture(scope="module")
def bodies() -> Mapping[str, Any]:
    """The schemas of all request bodies."""
    settings = Settings(database_url=SecretStr("postgresql://nowhere/x"), redis_url=SecretStr("redis://nowhere"))
    app = load_all(build_app(settings))
    fields = [route.body_field for route in app.routes if isinstance(route, APIRoute) and route.body_field is not None]
    assert len(fields) > 30
    return {str(body.field_info.annotation): _schema(body.field_info.annotation) for body in fields}


@pytest.mark.parametrize("kinds", [_BOOLEANS, _NUMBERS])
def test_a_request_s_booleans_and_numbers_are_true_ones(kinds: frozenset[str], bodies: Mapping[str, Any]) -> None:
    assert {place for name, schema in bodies.items() for place in _lax(schema, kinds, name)} == set()


def test_a_configuration_s_numbers_are_true_ones() -> None:
    configurations = (*Section.__subclasses__(), OrchestrationConfig, ModelsDocument, PolicyDocument)
    assert len(configurations) > 15
    assert {place for each in configurations for place in _lax(_schema(each), _NUMBERS, each.__name__)} == set()


def test_a_tool_s_numbers_are_true_ones() -> None:
    for module in MODULES:
        import_module(f"nova_workers.domain.{module}")
    inputs = ToolInput.__subclasses__()
    assert len(inputs) > 30
    assert {place for each in inputs for place in _lax(_schema(each), _NUMBERS, each.__name__)} == set()


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (ApiSettings, {"port": True}),
        (ApiSettings, {"heartbeat_s": False}),
        (AgentReplace, {"name": "Clerk", "max_turns": True}),
        (AgentReplace, {"name": "Clerk", "cost_budget_usd": True}),
        (TriggerPatch, {"max_runs_per_day": True}),
        (EngineConfig, {"max_agent_depth": True}),
    ],
)
def test_true_is_no_number(model: type[BaseModel], given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="should be a number, and not true or false"):
        model.model_validate(given)


def test_numbers_are_taken_as_before() -> None:
    assert AgentReplace.model_validate({"name": "Clerk", "max_turns": 2.0}).max_turns == 2
    assert ApiSettings.model_validate({"port": "8701"}).port == 8701
