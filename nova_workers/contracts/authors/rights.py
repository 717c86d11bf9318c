"""The rights that authors need, each declared beside the fields of its model.

A document that steers agents (an agent, a configuration of orchestrations, a policy, a message) is a tree of models.
Each model declares with `authored` what an author needs to write each of its fields. A field without a declaration is
`UNDECLARED`, which takes the most; a test finds it.

The scope of the route that takes a document is what every author of it has. What is declared here comes beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel

AuthorScope = Literal["trust", "secrets"]
"""The scopes of a key that permit more than the usual in a document."""
CeilingName = Literal["trust", "directories", "engines", "mcp_commands"]
"""The field of a tenant's ceilings that bounds a field."""
Given = Mapping[str, str]
"""What of a value needs a scope, by its place below the field."""
Covers = Callable[[str, str], bool]
_ModelT = TypeVar("_ModelT", bound=BaseModel)

_DECLARED: Final = "__author_rights__"
_REFERENCE: Final = re.compile(r"\$\{secret:([^}]*)\}")
_USUAL_TRUST: Final = frozenset({"sandbox", "controlled"})
_PASSES_APPROVALS: Final = frozenset({"BYPASS", "ACCEPT_EDITS"})


def _gives_nothing(_: Any) -> Given:
    return {}


def _equals(one: str, other: str) -> bool:
    return one == other


@dataclass(frozen=True, slots=True)
class Right:
    """What an author needs to write a field.

    Attributes:
        meaning: For the table in the documents.
        steers: Whether the field is a part of what agents do. A document that holds what a scope permits is steered by
            authors with that scope only, also where they leave what it holds as it is.
        scope: The scope that `gives` needs.
        gives: What of a value needs the scope.
        noun: Names one of them in a refusal.
        covers: Whether the first of two of them includes the second.
        ceiling: The ceiling of the tenant that bounds the value.
        has_parts: Whether the value is models that declare their own fields.
    """

    meaning: str
    steers: bool = False
    scope: AuthorScope | None = None
    gives: Callable[[Any], Given] = _gives_nothing
    noun: str = "{!r}"
    covers: Covers = _equals
    ceiling: CeilingName | None = None
    has_parts: bool = False


def _trust(value: str) -> Given:
    return {} if value in _USUAL_TRUST else {"": value}


def _one(value: str | None) -> Given:
    return {} if value is None else {"": value}


def _each(values: Iterable[str]) -> Given:
    return {str(index): value for index, value in enumerate(values)}


def is_below(root: str, path: str) -> bool:
    """Return whether a path, as it is written, is a directory or lies in it."""
    inner = PurePosixPath(path)
    return ".." not in inner.parts and inner.is_relative_to(root)


def _references(value: str | Mapping[str, str]) -> Given:
    """Return the secrets that texts refer to. Of several in one text, the place is that of the text."""
    texts = {"": value} if isinstance(value, str) else value
    found = ((place, at, name) for place, text in texts.items() for at, name in enumerate(_REFERENCE.findall(text)))
    return {f"{place}{'#' * at}": name for place, at, name in found}


def _mode(value: str) -> Given:
    return {"": value} if value in _PASSES_APPROVALS else {}


def _anything(value: Any) -> Given:
    return {"": f"{value!r:.80}"}


FREE: Final = Right("none: for people, or without effect on what agents do")
BOUND: Final = Right("none: a limit or a time; budgets of the tenant and ceilings hold in any case")
MESSAGE: Final = Right("none: what agents read, as from any caller with the route's scope")
ADDRESSEE: Final = Right("none: any agent or thread of the tenant may be named")
OUTBOUND: Final = Right("none: an address that the fleet requests under its guard on addresses")
MODEL: Final = Right("none: any model that the operator's settings offer; ceilings bound the engine")
WITHIN: Final = Right("none: within what the agent of the run or of the orchestration holds")
DOCUMENT: Final = Right("of the document that it contains or names")
STEERS: Final = Right("what the document holds", steers=True)
PARTS: Final = Right("of its parts", has_parts=True)
GRANT: Final = Right("of the capability's own configuration", has_parts=True)
TRUST: Final = Right(
    "`trust` for more than `controlled`", scope="trust", gives=_trust, noun="the trust {!r}", ceiling="trust"
)
DIRECTORIES: Final = Right(
    "`trust`", scope="trust", gives=_each, noun="the directory {!r}", covers=is_below, ceiling="directories"
)
PROGRAM_DIRECTORY: Final = Right(
    "`trust`, and what the document holds",
    steers=True,
    scope="trust",
    gives=_one,
    noun="the directory {!r}",
    covers=is_below,
    ceiling="directories",
)
WORKING_DIRECTORY: Final = Right(
    "what the document holds; within the directories of the orchestration's agent", steers=True, ceiling="directories"
)
CEILING_ENGINE: Final = Right("what the document holds", steers=True, ceiling="engines")
COMMAND: Final = Right(
    "what the document holds; of the commands that the operator permits", steers=True, ceiling="mcp_commands"
)
SECRET_REFERENCES: Final = Right(
    "`secrets` for `${secret:NAME}`, and what the document holds",
    steers=True,
    scope="secrets",
    gives=_references,
    noun="the secret {!r}",
)
SECRET_NAMES: Final = Right("`secrets`", steers=True, scope="secrets", gives=_each, noun="the secret {!r}")
MODE: Final = Right(
    "`trust` for `BYPASS` and `ACCEPT_EDITS`, and what the document holds",
    steers=True,
    scope="trust",
    gives=_mode,
    noun="the permission mode {!r}",
)
ALLOWED_COMMANDS: Final = Right(
    "`trust`, and what the document holds",
    steers=True,
    scope="trust",
    gives=_each,
    noun="the command {!r} without approval",
)
UNDECLARED: Final = Right("`trust`", steers=True, scope="trust", gives=_anything, noun="the value {}")


def authored(**fields: Right) -> Callable[[type[_ModelT]], type[_ModelT]]:
    """Declare what authors need to write the fields of a model. Those of its bases stay declared.

    Raises:
        TypeError: The model has no such field.
    """

    def declare(model: type[_ModelT]) -> type[_ModelT]:
        for name in fields:
            if name not in model.model_fields:
                raise TypeError(f"{model.__name__} has no field {name!r} to declare a right for.")
        setattr(model, _DECLARED, fields)
        return model

    return declare


@cache
def rights_of(model: type[BaseModel]) -> Mapping[str, Right]:
    """Return the right of each field of a model: the nearest declaration along its bases."""
    found: dict[str, Right] = {}
    for base in reversed(model.__mro__):
        found |= vars(base).get(_DECLARED, {})
    return {name: found.get(name, UNDECLARED) for name in model.model_fields}
