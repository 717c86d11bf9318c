"""The fields of a provider's requests, as its SDK's types of parameters have them."""

from functools import cache
from typing import Any, Required, get_origin, get_type_hints


@cache
def fields(form: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fields of one of the types, and those that are required."""
    hints = get_type_hints(form, include_extras=True)
    return frozenset(hints), frozenset(name for name, hint in hints.items() if get_origin(hint) is Required)
