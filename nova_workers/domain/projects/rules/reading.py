"""Reads what a project had, and what the fleet has of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_workers.base.errors import Conflict
from nova_workers.base.vocabulary import ProjectItemKind
from nova_workers.domain.projects import sql as ledger
from nova_workers.domain.projects.rules.documents import (
    agent_document,
    base_document,
    stored_skill_document,
    stored_trigger_document,
)
from nova_workers.domain.projects.rules.planning import ItemId, Known, Wanted
from nova_workers.domain.projects.rules.writing import FIELD_OF
from nova_workers.domain.projects.sql import Label
from nova_workers.domain.triggers.sql.definitions import find_triggers
from nova_workers.ledger.database import Connection


async def read_known(
    connection: Connection, tenant_id: str, project: str, wanted: Sequence[Wanted], labels: Mapping[ItemId, Label]
) -> dict[ItemId, Known]:
    """Return the items that a project had, and the things on the fleet with the names of wanted items.

    Agents are locked: whatever changes one of them meanwhile waits, and then sees what was applied.

    Raises:
        Conflict: A wanted agent has another id on the fleet, or a wanted item belongs to another project.
    """
    items: set[ItemId] = {(item.kind, item.name) for item in wanted}
    keys = sorted({*items, *labels})
    present: dict[ItemId, Known] = {}
    agent_ids, skill_names = _names("agent", keys), _names("skill", keys)
    await ledger.lock_agents(connection, tenant_id, agent_ids)
    for agent in await ledger.agents_now(connection, tenant_id, agent_ids):
        if agent.spec is not None:
            present["agent", agent.id] = Known(agent.id, None, agent_document(agent.spec), agent.version)
        elif ("agent", agent.id) in items:
            raise Conflict(
                f"agents.{agent.id}.id: agent {agent.id!r} was renamed to {agent.renamed_to!r} on the fleet. Give it "
                f"this id in the project too, with the former_id {agent.id!r}.",
                field=f"agents.{agent.id}.id",
                renamed_to=agent.renamed_to,
            )
    for skill in await ledger.skills_now(connection, tenant_id, skill_names):
        document = stored_skill_document(skill.skill_md, skill.files)
        present["skill", skill.name] = Known(skill.name, None, document)
    keys_by_id = {label.resource_id: label.name for label in labels.values() if label.kind == "trigger"}
    for trigger in await find_triggers(connection, tenant_id, list(keys_by_id)):
        present["trigger", keys_by_id[trigger.id]] = Known(trigger.id, None, stored_trigger_document(trigger))
    known = {key: found for key in keys if (found := _known(labels.get(key), present.get(key))) is not None}
    await _require_own(connection, tenant_id, project, known)
    return known


def _known(label: Label | None, present: Known | None) -> Known | None:
    if label is None:
        return present
    base: dict[str, Any] = base_document(label.kind, label.applied)
    if present is None:
        return Known(label.resource_id, base, None)
    return Known(present.resource_id, base, present.present, present.version)


def _names(kind: ProjectItemKind, keys: Iterable[ItemId]) -> list[str]:
    return [name for each, name in keys if each == kind]


async def _require_own(connection: Connection, tenant_id: str, project: str, known: Mapping[ItemId, Known]) -> None:
    things: list[ItemId] = [(kind, each.resource_id) for (kind, _), each in known.items() if each.base is None]
    owners = await ledger.other_owners(connection, tenant_id, project, things) if things else {}
    for (kind, thing_id), owner in owners.items():
        place = f"{FIELD_OF[kind]}.{thing_id}"
        raise Conflict(
            f"{place}: the {kind} {thing_id!r} belongs to the project {owner!r}. Take it out of one of the two.",
            field=place,
            project=owner,
        )
