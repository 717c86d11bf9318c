"""Converts the output schema to the provider's grammar.

The provider's grammar supports only a part of JSON Schema. The SDK moves what it cannot express into descriptions. A
schema that the SDK cannot convert goes into the prompt, as does an object without listed properties, for which the
grammar would allow only ``{}``. The turn validates the answer in each case.
"""

from collections.abc import Mapping
from typing import Any

from anthropic import transform_schema

from nova_workers.contracts.content import JsonObject


def answer_grammar(schema: Mapping[str, Any]) -> JsonObject | None:
    """Return the schema for the provider's grammar; None if it cannot be expressed."""
    try:
        grammar = transform_schema(dict(schema))
    except (ValueError, TypeError, AttributeError, AssertionError):
        # The SDK raises any of these for lists of types, schemas that are just `true`, and the like.
        return None
    return None if _admits_nothing(grammar) else grammar


def _admits_nothing(node: Any) -> bool:
    """Return whether the schema contains an object without properties."""
    if isinstance(node, list):
        return any(map(_admits_nothing, node))
    if not isinstance(node, dict):
        return False
    if node.get("type") == "object" and not node.get("properties"):
        return True
    return any(_admits_nothing(value) for value in node.values())
