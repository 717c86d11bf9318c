"""How the provider is told of the form that the final answer must have.

The provider's grammar knows a part of JSON Schema only. What it cannot express, the SDK moves into descriptions. What
the SDK cannot take either is asked for in words, and so is an object of which nothing is said but that it is one: the
grammar would let through ``{}`` and nothing else. The turn checks the answer in each case.
"""

from collections.abc import Mapping
from typing import Any

from anthropic import transform_schema

from nova_workers.contracts.content import JsonObject

__all__ = ["answer_grammar"]


def answer_grammar(schema: Mapping[str, Any]) -> JsonObject | None:
    """Return the schema as the provider's grammar takes it; None where it cannot."""
    try:
        grammar = transform_schema(dict(schema))
    except (ValueError, TypeError, AttributeError, AssertionError):
        # Whatever the SDK's walk over the schema stumbles on: lists of types, schemas that are only true, and the like.
        return None
    return None if _admits_nothing(grammar) else grammar


def _admits_nothing(node: Any) -> bool:
    """Whether an object is in it that may have no property."""
    if isinstance(node, list):
        return any(map(_admits_nothing, node))
    if not isinstance(node, dict):
        return False
    if node.get("type") == "object" and not node.get("properties"):
        return True
    return any(_admits_nothing(value) for value in node.values())
