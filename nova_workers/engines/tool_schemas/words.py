"""Schemas in words, and as text."""

from typing import Any

import orjson

from nova_workers.contracts.content import JsonObject


def as_json(value: Any) -> str:
    """Return a value as JSON, the same for equal values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def explain(built: JsonObject, words: str) -> None:
    """Add words to a schema's description."""
    built["description"] = f"{built.get('description', '')} {words}".strip()
