"""Docstrings below fields, which describe the fields in JSON schemas."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class DescribedFields(BaseModel):
    """Base of models whose fields are described by the docstrings below them.

    They are read when a schema is made. pydantic's `use_attribute_docstrings` parses the source of each class when it
    is imported, which takes 30 ms in every command.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return pydantic's schema, in which fields without a description have their docstring."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name in cls.model_fields.keys() & properties.keys():
            owner = next(base for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))
            text = _docstrings(owner.__module__).get(owner.__qualname__, {}).get(name)
            if text is not None:
                properties[name].setdefault("description", text)
        return schema


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of each class of a module; none if its source is not installed."""
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    return {item.name: _of_fields(item) for item in ast.parse(source).body if isinstance(item, ast.ClassDef)}


def _of_fields(definition: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
