"""aiogram without the validators of its types, which take most of its import: each is built when it is first used.

pydantic builds them at first use by itself (`defer_build`). aiogram asks for all of them when it is imported, since the
names in their annotations are known there alone. A bot uses a few of the hundreds.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel

_TYPES = "aiogram.types."
_CALLER_DEPTH = 2
"""How many frames above `model_rebuild` pydantic looks for names: its default."""


def import_aiogram() -> None:
    """Import aiogram, if it is installed, so that none of its types is built before its first use.

    Nothing changes where aiogram was imported before, or does not build its types at import.
    """
    if "aiogram" in sys.modules or find_spec("aiogram") is None:
        return
    rebuild: Any = vars(BaseModel)["model_rebuild"]
    names: dict[str, Any] = {}

    def note_names(cls: type[BaseModel], **given: Any) -> bool | None:
        if cls.__module__.startswith(_TYPES) and given.get("_types_namespace"):
            names.update(given["_types_namespace"])
            return None
        depth = given.get("_parent_namespace_depth", _CALLER_DEPTH) + 1
        return rebuild.__func__(cls, **given | {"_parent_namespace_depth": depth})

    def build_with_names(cls: type[BaseModel], **given: Any) -> bool | None:
        known = names | dict(given.get("_types_namespace") or {})
        return rebuild.__func__(cls, **given | {"_types_namespace": known})

    model_class: Any = BaseModel
    model_class.model_rebuild = classmethod(note_names)
    try:
        methods: Any = importlib.import_module("aiogram.methods.base")
        types: Any = importlib.import_module("aiogram.types.base")
    finally:
        model_class.model_rebuild = rebuild
    if names:
        for root in (types.TelegramObject, methods.TelegramMethod, methods.Response):
            root.model_rebuild = classmethod(build_with_names)
