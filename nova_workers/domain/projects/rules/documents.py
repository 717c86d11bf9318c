"""The documents of a project's items, in the one form in which they are compared. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from nova_workers.base.vocabulary import ProjectItemKind
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.projects import ProjectTrigger
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerView
from nova_workers.contracts.skills import SkillPut
from nova_workers.domain.triggers.rules.schedules import parse_schedule
from nova_workers.ledger.stored import read_stored

_TRIGGER: Final = tuple(TriggerCreate.model_fields)
_FILE: Final = "files."


def agent_document(spec: AgentSpec) -> dict[str, Any]:
    """Return the document of an agent: the fields of its configuration."""
    return AgentSpec.model_dump(spec, mode="json", include=set(AgentSpec.model_fields))


def skill_document(given: SkillPut) -> dict[str, Any]:
    """Return the document of a skill as it is given: its text, and a digest of each file.

    A content that is not base64 has no digest; writing it is refused.
    """
    files = {file.path: _digest(file.content_base64, executable=file.executable) for file in given.files}
    return stored_skill_document(given.skill_md, files)


def stored_skill_document(skill_md: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of a stored skill."""
    return {"skill_md": skill_md} | {f"{_FILE}{path}": digest for path, digest in files.items()}


def trigger_document(given: ProjectTrigger, *, timezone: str) -> dict[str, Any]:
    """Return the document of a trigger as it is given.

    Args:
        timezone: The fleet's, for a trigger without one.

    Raises:
        InvalidInput: Its schedule has the wrong form; names the field.
    """
    zone = given.timezone or timezone
    schedule = parse_schedule(given.kind, given.schedule, zone, starts_at=given.starts_at, ends_at=given.ends_at)
    return _of_trigger(given) | {"timezone": zone, "schedule": schedule.text}


def stored_trigger_document(trigger: TriggerView) -> dict[str, Any]:
    """Return the document of a stored trigger."""
    return _of_trigger(trigger)


def base_document(kind: ProjectItemKind, applied: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as it was applied, with the defaults of fields that came with later releases."""
    match kind:
        case "agent":
            return agent_document(read_stored(AgentSpec.model_validate, applied))
        case "trigger":
            return _of_trigger(read_stored(TriggerCreate.model_validate, applied))
        case "skill":
            return dict(applied)


def _of_trigger(trigger: TriggerCreate | TriggerView) -> dict[str, Any]:
    document = trigger.model_dump(mode="json", include=set(_TRIGGER))
    for name in _TRIGGER:
        value = getattr(trigger, name)
        if isinstance(value, datetime):
            document[name] = value.astimezone(UTC).isoformat()
    return document


def _digest(content_base64: str, *, executable: bool) -> str:
    try:
        content = b64decode(content_base64, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return sha256(content).hexdigest() + (" executable" if executable else "")
