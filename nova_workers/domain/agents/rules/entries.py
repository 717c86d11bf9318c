"""The fields of a document with the rights that their authors need. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast, get_args

from pydantic import BaseModel

from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.contracts.authors.rights import GRANT, Right, rights_of

Aim = Callable[[Right], bool]
"""Which rights a search is about."""


class GrantForms(Protocol):
    """The registry of capabilities, as far as the form of a grant's configuration is about it."""

    def config_type(self, name: str) -> type[BaseModel] | None:
        """Return the model of a capability's configuration; None if there is no such capability."""
        ...

    def config_of(self, name: str, grant: CapabilityGrant) -> BaseModel | None:
        """Return the configuration of a grant; None if it is not valid any more, so that what it gives is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a document that has no parts.

    Attributes:
        right: What its author needs.
        value: The value; None for the configuration of a grant that cannot be read.
        owner: The model that has the field.
    """

    right: Right
    value: Any
    owner: BaseModel

    def held(self) -> tuple[str, ...]:
        """Return the parts of the value that need the scope of the right, in words."""
        return tuple(self.right.noun.format(each) for each in self.right.gives(self.value).values())

    def gained(self, before: Entry | None) -> Iterator[tuple[str, str]]:
        """Yield the parts of the value that need the scope and are new: the place below the field, and words."""
        known = () if before is None else before.right.gives(before.value).values()
        for place, given in self.right.gives(self.value).items():
            if not any(self.right.covers(other, given) for other in known):
                yield place.rstrip("#"), self.right.noun.format(given)


def has_right(_: Right) -> bool:
    """Aim at every field."""
    return True


def has_ceiling(right: Right) -> bool:
    """Aim at fields that a ceiling bounds."""
    return right.ceiling is not None


def document_entries(
    document: BaseModel, grants: GrantForms | None = None, *, aim: Aim = has_right
) -> Iterator[tuple[str, Entry]]:
    """Yield the fields of a document and of its parts, with their paths.

    Args:
        document: A model whose fields declare rights.
        grants: Reads the configurations of capabilities; None where the document has none.
        aim: Which rights are searched for. What cannot lead to one is not read.
    """
    yield from _entries(document, "", None, _Search(grants, aim))


@dataclass(frozen=True, slots=True)
class _Search:
    grants: GrantForms | None
    aim: Aim


def _entries(document: BaseModel, at: str, key: str | None, search: _Search) -> Iterator[tuple[str, Entry]]:
    for name, right in _searched(type(document), search.aim):
        path = f"{at}{name}"
        if not right.has_parts:
            yield path, Entry(right, getattr(document, name), document)
        elif right is GRANT:
            yield from _grant_entries(cast(CapabilityGrant, document), path, key or "", search)
        else:
            for step, part in _parts(getattr(document, name)):
                if not _leads_nowhere(part, step, search):
                    yield from _entries(part, f"{path}{step}.", step[1:], search)


def _leads_nowhere(part: BaseModel, step: str, search: _Search) -> bool:
    """Return whether a grant's configuration has no field that is searched for, as with most capabilities."""
    if not isinstance(part, CapabilityGrant) or search.aim is has_right:
        return False
    form = None if search.grants is None else search.grants.config_type(step[1:])
    return form is not None and not _searched(form, search.aim)


def _grant_entries(grant: CapabilityGrant, path: str, name: str, search: _Search) -> Iterator[tuple[str, Entry]]:
    if search.grants is None:
        return
    config = search.grants.config_of(name, grant)
    if config is not None:
        yield from _entries(config, f"{path}.", None, search)
    elif search.aim(_UNREADABLE):
        yield path, Entry(_UNREADABLE, grant.config, grant)


def _parts(value: Any) -> Iterator[tuple[str, BaseModel]]:
    """Yield the models of a field's value, with the steps that lead to them."""
    if isinstance(value, BaseModel):
        yield "", value
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[str, BaseModel]", value).items():
            yield f".{key}", part
    elif value is not None:
        for index, part in enumerate(cast("Iterable[BaseModel]", value)):
            yield f".{index}", part


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that values of an annotation contain."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


@cache
def _searched(model: type[BaseModel], aim: Aim) -> tuple[tuple[str, Right], ...]:
    """Return the fields of a model that are searched for, or have parts that lead to one."""
    return tuple(
        (name, right)
        for name, right in rights_of(model).items()
        if right is GRANT or (_leads(model, name, aim) if right.has_parts else aim(right))
    )


def _leads(model: type[BaseModel], field: str, aim: Aim) -> bool:
    return any(_searched(part, aim) for part in models_in(model.model_fields[field].annotation))


_UNREADABLE = Right(
    "`secrets`",
    steers=True,
    scope="secrets",
    gives=lambda _: {"": "*"},
    noun="every secret ({!r}), as its configuration cannot be read any more",
)
