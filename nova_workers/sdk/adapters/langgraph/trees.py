"""Values of channels as JSON: people can read them in the journal, and secrets are found in them.

LangGraph serializes a value to MessagePack, with extension types for objects, whose data is MessagePack again. Such a
text becomes a tree of JSON here, and the same text again. What JSON has no form for is an object with one key that
begins with ``$``.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol

_KEYS: Final = ormsgpack.OPT_NON_STR_KEYS
_MARK: Final = "$"


@dataclass(frozen=True, slots=True)
class _Extension:
    code: int
    data: bytes


def tree_of(serde: SerializerProtocol, value: Any) -> Any:
    """Return a value as JSON."""
    kind, data = serde.dumps_typed(value)
    if kind == "null":
        return None
    if kind == "msgpack":
        return _to_tree(ormsgpack.unpackb(data, ext_hook=_Extension, option=_KEYS))
    return {"$typed": [kind, b64encode(data).decode()]}


def value_of(serde: SerializerProtocol, tree: Any) -> Any:
    """Return the value of such a tree."""
    if isinstance(tree, dict) and "$typed" in tree:
        kind, data = tree["$typed"]
        return serde.loads_typed((kind, b64decode(data)))
    return serde.loads_typed(("msgpack", ormsgpack.packb(_from_tree(tree), option=_KEYS)))


def _to_tree(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case bytes():
            return {"$bytes": b64encode(value).decode()}
        case list():
            return [_to_tree(each) for each in value]
        case dict():
            return _object(value)
        case _Extension():
            return _extension(value)
        case _:
            return value


def _object(value: dict[Any, Any]) -> Any:
    if all(isinstance(key, str) and not key.startswith(_MARK) for key in value):
        return {key: _to_tree(each) for key, each in value.items()}
    return {"$dict": [[_to_tree(key), _to_tree(each)] for key, each in value.items()]}


def _extension(value: _Extension) -> Any:
    try:
        inner = ormsgpack.unpackb(value.data, ext_hook=_Extension, option=_KEYS)
    except ormsgpack.MsgpackDecodeError:
        return {"$raw": [value.code, b64encode(value.data).decode()]}
    return {"$object": [value.code, _to_tree(inner)]}


def _from_tree(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_from_tree(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((key, value),) = tree.items()
        if key.startswith(_MARK):
            return _marked(key, value)
    return {key: _from_tree(each) for key, each in tree.items()}


def _marked(key: str, value: Any) -> Any:
    match key:
        case "$float":
            return float(value)
        case "$bytes":
            return b64decode(value)
        case "$dict":
            return {_from_tree(key): _from_tree(each) for key, each in value}
        case "$raw":
            return ormsgpack.Ext(value[0], b64decode(value[1]))
        case "$object":
            return ormsgpack.Ext(value[0], ormsgpack.packb(_from_tree(value[1]), option=_KEYS))
        case _:
            raise ValueError(f"A value of a checkpoint has the form {key!r}, which a later release wrote.")


def change(before: Any, after: Any) -> Mapping[str, Any]:
    """Return the difference between two trees: of a list, the elements that follow the part that stays."""
    if not isinstance(before, list) or not isinstance(after, list):
        return {"is": after}
    same = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        same += 1
    return {"keep": same, "add": after[same:]} if same else {"is": after}


def changed(before: Any, by: Mapping[str, Any]) -> Any:
    """Return a tree after a change."""
    return by["is"] if "is" in by else [*before[: by["keep"]], *by["add"]]
