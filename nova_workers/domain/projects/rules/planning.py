"""Compares what a project says with the fleet, field by field. Pure.

Three documents are compared of each item: as it was when the project was last applied (``base``), as it is on the fleet
(``present``), and as the project has it (``wanted``). A field that the fleet changed since, and that the project wants
otherwise, is drift. Only that needs a decision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nova_workers.base.vocabulary import OnDrift, ProjectAction, ProjectItemKind

Document = Mapping[str, Any]
"""A configuration by its fields, as JSON, with all defaults."""
ItemId = tuple[ProjectItemKind, str]
"""Kind, and name in the project."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An item as a project has it.

    Attributes:
        is_whole: Whether it is kept or written as a whole, however little of it was changed on the fleet.
        former: What the project called it before, where that name is given up now.
    """

    kind: ProjectItemKind
    name: str
    document: Document
    is_whole: bool = False
    former: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """An item that the project had when it was last applied, or that exists on the fleet.

    Attributes:
        resource_id: Of the thing.
        base: As it was last applied; None for a thing that does not belong to the project.
        present: As it is on the fleet; None if it was deleted there.
        version: Of an agent.
    """

    resource_id: str
    base: Document | None
    present: Document | None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs between the fleet and the project."""

    field: str
    before: Any
    after: Any
    drifted: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What is done with an item.

    Attributes:
        known: As it was found; None for one that is created.
        wanted: None for one that is in the project no longer.
        document: What is written; None where nothing is.
    """

    kind: ProjectItemKind
    name: str
    action: ProjectAction
    known: Known | None
    wanted: Document | None
    document: Document | None = None
    former: str | None = None
    drifted: bool = False
    differences: tuple[Difference, ...] = field(default=())


def plan_steps(
    wanted: Sequence[Wanted], known: Mapping[ItemId, Known], *, on_drift: OnDrift, prune: bool
) -> list[Step]:
    """Return the steps to do. Items that stay as they are, and belong to the project, are left out.

    Args:
        wanted: All items of the project.
        known: Those that the project had, and those on the fleet with the names of wanted ones.
        on_drift: As ``overwrite`` for ``refuse``: the caller refuses steps that are `drifted`.
        prune: Whether items that the project has no longer are deleted.
    """
    steps = [
        step
        for item in wanted
        if (step := _step(item, known.get((item.kind, item.name)), keeps=on_drift == "keep")) is not None
    ]
    used = {(item.kind, item.name) for item in wanted}
    for (kind, name), each in known.items():
        if each.base is not None and (kind, name) not in used:
            steps.append(_left(kind, name, each, on_drift=on_drift, prune=prune))
    return steps


def digest_of(steps: Sequence[Step]) -> str:
    """Return the SHA-256 of what steps do, in hexadecimal."""
    parts = [
        (each.kind, each.name, each.action, each.former, each.document, each.known and each.known.present)
        for each in steps
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


def _step(item: Wanted, found: Known | None, *, keeps: bool) -> Step | None:
    if found is None or found.present is None:
        was_deleted = found is not None and found.base is not None
        if was_deleted and keeps:
            return Step(item.kind, item.name, "drift", found, item.document, drifted=True)
        return Step(item.kind, item.name, "create", found, item.document, item.document, drifted=was_deleted)
    differences = tuple(_differences(found, item.document))
    drifted = any(each.drifted for each in differences)
    kept = differences if item.is_whole and drifted else [each for each in differences if each.drifted]
    document = dict(item.document)
    if keeps:
        document |= {each.field: each.before for each in kept}
    writes = bool(differences) and not (keeps and len(kept) == len(differences))
    action = _action(item, found, writes=writes, drifted=drifted)
    if action is None:
        return None
    return Step(
        item.kind,
        item.name,
        action,
        found,
        item.document,
        document if writes else None,
        former=item.former,
        drifted=drifted,
        differences=differences,
    )


def _left(kind: ProjectItemKind, name: str, known: Known, *, on_drift: OnDrift, prune: bool) -> Step:
    """Return the step for an item that the project has no longer."""
    if known.base is None or known.present is None:
        return Step(kind, name, "forget", known, None)
    drifted = prune and any(_changed_since(known.base, known.present))
    if prune and not (drifted and on_drift == "keep"):
        return Step(kind, name, "delete", known, None, drifted=drifted)
    return Step(kind, name, "orphan", known, None, drifted=drifted)


def _action(item: Wanted, found: Known, *, writes: bool, drifted: bool) -> ProjectAction | None:
    if item.former is not None:
        return "rename"
    if writes:
        return "update"
    if found.base is None:
        return "adopt"
    return "drift" if drifted else None


def _differences(found: Known, wanted: Document) -> Iterator[Difference]:
    present = found.present or {}
    for name in _fields(wanted, present):
        before, after = present.get(name), wanted.get(name)
        if before != after:
            drifted = found.base is None or found.base.get(name) != before
            yield Difference(name, before, after, drifted)


def _changed_since(base: Document, present: Document) -> Iterator[str]:
    return (name for name in _fields(base, present) if base.get(name) != present.get(name))


def _fields(one: Document, other: Document) -> Iterator[str]:
    yield from one
    yield from (name for name in other if name not in one)
