"""Changes of state documents as JSON Patches (RFC 6902), of which the protocol's deltas are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.thread_state import is_same


def json_patch(before: JsonObject, after: JsonObject) -> list[JsonObject]:
    """Return the operations that make one document of another. What is no object is replaced as a whole."""
    return list(_operations(before, after, ""))


def _operations(before: JsonObject, after: JsonObject, at: str) -> Iterator[JsonObject]:
    for name in before.keys() - after.keys():
        yield {"op": "remove", "path": f"{at}/{_token(name)}"}
    for name, value in after.items():
        path = f"{at}/{_token(name)}"
        old: Any = before.get(name)
        if name not in before:
            yield {"op": "add", "path": path, "value": value}
        elif isinstance(old, dict) and isinstance(value, dict):
            yield from _operations(old, value, path)
        elif not is_same(old, value):
            yield {"op": "replace", "path": path, "value": value}


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
