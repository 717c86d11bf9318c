"""Requests have true booleans: neither ``"no"`` nor 1 is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.routing import APIRoute
from pydantic import SecretStr, TypeAdapter

from api.app import build_app
from nova_workers.config import Settings


def _lax(schema: Any, path: str, parts: Mapping[str, Any], seen: set[str], *, strict: bool = False) -> Iterator[str]:
    """Yield where a core schema of pydantic accepts other values as booleans."""
    match schema:
        case {"type": "definitions", "schema": inner, "definitions": definitions}:
            named = {**parts, **{each["ref"]: each for each in definitions}}
            yield from _lax(inner, path, named, seen, strict=strict)
        case {"type": "definition-ref", "schema_ref": str(name)} if name not in seen:
            seen.add(name)
            yield from _lax(parts[name], path, parts, seen, strict=strict)
        case {"type": "bool"} if not schema.get("strict", strict):
            yield path
        case {"type": "model"}:
            inner_strict = schema.get("config", {}).get("strict", strict)
            yield from _lax(schema["schema"], path, parts, seen, strict=inner_strict)
        case Mapping():
            for key, inner in schema.items():
                if key not in {"config", "metadata", "serialization", "default"}:
                    yield from _lax(inner, f"{path}.{key}", parts, seen, strict=strict)
        case list() | tuple():
            for inner in schema:
                yield from _lax(inner, path, parts, seen, strict=strict)
        case _:
            pass


def test_a_request_s_booleans_are_true_ones() -> None:
    app = build_app(Settings(database_url=SecretStr("postgresql://nowhere/x"), redis_url=SecretStr("redis://nowhere")))
    bodies = [route.body_field for route in app.routes if isinstance(route, APIRoute) and route.body_field is not None]
    assert len(bodies) > 30
    lax = {
        place
        for body in bodies
        for place in _lax(
            TypeAdapter(body.field_info.annotation).core_schema, str(body.field_info.annotation), {}, set()
        )
    }
    assert lax == set()
