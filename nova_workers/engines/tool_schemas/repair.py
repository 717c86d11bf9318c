"""Makes a tool's schema one that a provider takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from nova_workers.contracts.content import JsonObject, storable_json
from nova_workers.engines.tool_schemas.limits import ToolLimits
from nova_workers.engines.tool_schemas.lint import schema_problem
from nova_workers.engines.tool_schemas.nodes import SchemaRebuilder
from nova_workers.engines.tool_schemas.roots import object_root, renamed_keys

_CUT_LEVELS: Final = 3
"""Levels that a schema has below the one at which it is cut: items, and alternatives of them."""
_SMALLER: Final = ((6, False), (3, False), (1, False))
"""Depths, and whether annotations are kept, for a schema that is too large as it is."""
_MAX_REMEMBERED_BYTES: Final = 8_000


class Unrepairable(ValueError):
    """No form of the schema is one that the provider takes; the message says why, in words that follow a name."""


@dataclass(frozen=True, slots=True)
class RepairedSchema:
    """A schema that the provider takes. Do not change it: it is shared.

    Attributes:
        own_keys: The tool's own keys of arguments, by those in the schema, where they differ.
        size_bytes: Its length as JSON.
    """

    schema: JsonObject
    own_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    size_bytes: int = 0

    def arguments(self, given: JsonObject) -> JsonObject:
        """Return a call's arguments with the tool's own keys."""
        if not self.own_keys:
            return given
        return {self.own_keys.get(key, key): value for key, value in given.items()}


def repaired(schema: Any, limits: ToolLimits) -> RepairedSchema:
    """Return the schema in the nearest form that the provider takes.

    It tells the model what to give; whether a call is right, its tool decides.

    Args:
        schema: What a server declares, which may be anything that JSON can express.
        limits: What the provider takes.

    Raises:
        Unrepairable: There is no such form.
    """
    try:
        text = orjson.dumps(schema)
    except orjson.JSONEncodeError:
        # It has characters, numbers or levels that JSON in UTF-8 has not.
        text = orjson.dumps(storable_json(schema))
    if len(text) > _MAX_REMEMBERED_BYTES:
        return _repaired_text(text, limits)
    return _remembered(text, limits)


def _repaired_text(text: bytes, limits: ToolLimits) -> RepairedSchema:
    return _repaired(storable_json(orjson.loads(text)), limits)


_remembered = lru_cache(maxsize=1_024)(_repaired_text)
"""Repairs a schema once: every turn lists the same tools again, and a repair costs a hundred times the look-up."""


def _repaired(schema: Any, limits: ToolLimits) -> RepairedSchema:
    problem = "it cannot be read"
    for depth, annotated in ((limits.max_depth - _CUT_LEVELS, True), *_SMALLER):
        # At the top all keywords are read, to be merged or put into words; below it only what the provider knows.
        rebuilder = SchemaRebuilder(schema, max_depth=depth, plain=False, annotated=annotated)
        root = object_root(rebuilder.rebuild(schema))
        if root is None:
            raise Unrepairable("its input is not an object, which the arguments of a call are")
        root, own_keys = renamed_keys(root)
        if limits.plain:
            root = _plain(root, limits)
        problem = schema_problem(root, limits)
        if problem is None:
            return RepairedSchema(root, own_keys, len(orjson.dumps(root)))
    raise Unrepairable(f"its schema cannot be sent: {problem}")


def _plain(root: JsonObject, limits: ToolLimits) -> JsonObject:
    """Return a schema without references in plain keywords."""
    rebuilder = SchemaRebuilder(root, max_depth=limits.max_depth - _CUT_LEVELS, plain=True)
    return {"properties": {}, **rebuilder.rebuild(root)}
