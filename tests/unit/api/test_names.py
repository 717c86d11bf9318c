"""Names in bodies of requests: every field that names something, of all routes, takes no control characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from api.app import build_app
from api.late_modules import load_all
from nova_workers.base.config import Settings
from nova_workers.contracts.bodies import is_one_line
from tests.requirements import proves

NAMING = frozenset({"name", "title", "label", "holder", "by", "channel", "tool", "path", "id", "model", "agent_id"})
HOSTILE = ("a\x1b[31mb", "a\x00b", "a\x7fb", "a\x9bb", "a\u202eb", "a\u2028b", "a\rb", "a\nb")
STORED = {
    "Responsibility": "is read from versions of agents, too",
    "SubagentSpec": "is read from versions of agents, too",
    "ApprovalRule": "is read from versions of agents, too",
    "AgentSpec": "is read from versions of agents, too; the bodies that make them have names of their own",
}
"""Types of parts of bodies, with the reason for which their names may have been written before."""
VENDORS = {(body, "model") for body in ("AgentCreate", "AgentPatch", "AgentReplace", "ProjectAgent")}
"""Names that a vendor gives, and refuses when there is no such thing."""


def _models(found: Any, seen: set[type[BaseModel]]) -> None:
    if isinstance(found, type) and issubclass(found, BaseModel):
        if found not in seen:
            seen.add(found)
            found.model_rebuild()
            for field in found.model_fields.values():
                _models(field.annotation, seen)
        return
    for part in get_args(found):
        _models(part, seen)


def _fields(settings: Settings) -> Iterator[tuple[str, str, FieldInfo]]:
    seen: set[type[BaseModel]] = set()
    for route in load_all(build_app(settings)).routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            _models(route.body_field.field_info.annotation, seen)
    for model in sorted(seen, key=lambda one: one.__name__):
        for name, field in model.model_fields.items():
            if name in NAMING and model.__name__ not in STORED and (model.__name__, name) not in VENDORS:
                yield model.__name__, name, field


@proves("names.one-line")
def test_no_body_takes_a_name_with_control_characters(settings: Settings) -> None:
    taken: list[tuple[str, str, str]] = []
    fields = list(_fields(settings))
    assert {
        "KeyCreate",
        "AgentCreate",
        "AgentPatch",
        "ThreadCreate",
        "TenantCreate",
        "TriggerCreate",
        "LeaseRequest",
    } <= {model for model, _, _ in fields}
    for model, name, field in fields:
        adapter = TypeAdapter(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        for text in HOSTILE:
            try:
                read = adapter.validate_python(text)
            except ValidationError:
                continue
            if not is_one_line(read):
                taken.append((model, name, repr(text)))
    assert taken == []


@pytest.mark.parametrize("text", ["plain", "two words", "Zoë's 名前 🙂", "-", "a/b:c"])
def test_other_names_are_taken(text: str) -> None:
    assert is_one_line(text)
