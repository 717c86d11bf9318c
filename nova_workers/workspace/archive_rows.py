"""What a row of an archive must be, beyond what the tables check themselves. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from nova_workers.contracts.agents import AGENT_ID_PATTERN, AgentSpec
from nova_workers.contracts.archive import ENDED_RUNS, ENDED_TURNS
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.skills import SkillFile
from nova_workers.errors import InvalidInput
from nova_workers.ledger.archive_writing import TABLES
from nova_workers.ledger.memories import MAX_CONTENT_CHARS
from nova_workers.workspace.schedules import parse_schedule
from nova_workers.workspace.skill_format import check_files, parse_skill_md

__all__ = ["MAX_TASK_ID", "checked_row"]

MAX_TASK_ID: Final = 2**31 - 2

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_AGENT_ID = re.compile(rf"{AGENT_ID_PATTERN.removesuffix('$')}\Z")
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_OTHER_KEYS: Final = frozenset(
    {"agents", "agent_versions", "skills", "skill_files", "tasks", "compactions", "thread_heads"}
)
"""Tables whose rows are not named by an id of ours."""
_ENDED: Final = {"runs": ENDED_RUNS, "turns": ENDED_TURNS}


def checked_row(table: str, row: JsonObject, validate_agent: Callable[[AgentSpec], None]) -> JsonObject:
    """Return a row as it may be written.

    Raises:
        InvalidInput: It may not; the message says which table and column.
    """
    kept = TABLES[table]
    unknown = row.keys() - set(kept.columns)
    if unknown:
        raise _wrong(table, f"there is no column {min(unknown)!r}")
    if table not in _OTHER_KEYS and not _is_id(row.get("id")):
        raise _wrong(f"{table}.id", f"{row.get('id')!r:.80} is no id")
    for column in kept.times:
        if row.get(column) is not None and not _is_moment(row[column]):
            raise _wrong(f"{table}.{column}", f"{row[column]!r:.80} is no time as RFC 3339 has it")
    if table in _ENDED and row.get("status") not in _ENDED[table]:
        raise _wrong(f"{table}.status", f"{row.get('status')!r:.80}; only {table} that ended are imported")
    return _checked_kind(table, row, validate_agent)


def _checked_kind(table: str, row: JsonObject, validate_agent: Callable[[AgentSpec], None]) -> JsonObject:
    match table:
        case "agents":
            spec = _agent(table, row.get("id"), row.get("spec"))
            # Versions of the past may name what is no more; they are history. What runs now must be right.
            if row.get("deleted_at") is None:
                validate_agent(spec)
        case "agent_versions":
            _agent(table, row.get("agent_id"), row.get("spec"))
        case "skills":
            return _skill(row)
        case "skill_files":
            _check_skill_file(row)
        case "deliveries" if (row.get("target"), row.get("webhook_id")) != ("user", None):
            # Another target is an address, and it may be another tenant's.
            raise _wrong("deliveries.target", f"{row.get('target')!r:.80}; only what stands in the inbox is imported")
        case "triggers":
            _check_trigger(row)
        case "memories" if len(str(row.get("content"))) > MAX_CONTENT_CHARS:
            raise _wrong("memories.content", f"it has more than {MAX_CONTENT_CHARS} characters")
        case "tasks" if not _is_task_id(row.get("id")):
            raise _wrong("tasks.id", f"{row.get('id')!r:.80} is no number of a task")
        case _:
            pass
    return row


def _agent(table: str, agent_id: object, spec: object) -> AgentSpec:
    if not isinstance(agent_id, str) or _AGENT_ID.match(agent_id) is None:
        raise _wrong(table, f"{agent_id!r:.80} is no id of an agent")
    try:
        return AgentSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _wrong(f"{table} {agent_id!r}", f"spec.{where}: {first['msg']}") from error


def _skill(row: JsonObject) -> JsonObject:
    front, body = parse_skill_md(str(row.get("skill_md")))
    if front.name != row.get("name"):
        raise _wrong("skills.name", f"SKILL.md calls {row.get('name')!r:.80} {front.name!r}")
    return {**row, "description": front.description, "body": body, "front_matter": front.model_dump(mode="json")}


def _check_trigger(row: JsonObject) -> None:
    """What fires by itself must be right when it is written: nobody looks on when it is not."""
    kind = row.get("kind")
    if kind not in ("cron", "at", "every"):
        raise _wrong("triggers.kind", f"{kind!r:.80} is no kind of trigger")
    try:
        parse_schedule(kind, str(row.get("schedule")), str(row.get("timezone")))
    except InvalidInput as error:
        raise _wrong(f"triggers.{error.fields.get('field', 'schedule')}", error.message) from error


def _check_skill_file(row: JsonObject) -> None:
    try:
        content = bytes.fromhex(str(row.get("content")).removeprefix("\\x"))
    except ValueError as error:
        raise _wrong("skill_files.content", "it is not hexadecimal") from error
    check_files([SkillFile(str(row.get("path")), content)])


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.match(value) is not None


def _is_moment(value: object) -> bool:
    """Whether a value is a time. Postgres takes more: ``yesterday``, and ``infinity``, which no calendar has."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return moment is not None and moment.tzinfo is not None and _FIRST_YEAR <= moment.year <= _LAST_YEAR


def _is_task_id(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_TASK_ID


def _wrong(where: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{where}: {problem}.", field=where)
