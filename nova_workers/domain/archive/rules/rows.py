"""Validation of an archive's rows beyond the constraints of the tables. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.base.vocabulary import ENDED_RUNS, ENDED_TURNS
from nova_workers.contracts.agents import AGENT_ID_PATTERN, AgentSpec
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.skills import SkillFile
from nova_workers.contracts.thread_state import size_problem
from nova_workers.domain.agents.rules.rules import check_agent_id, check_spec
from nova_workers.domain.archive.rules.values import MAX_COUNT, check_values, unreadable, wrong
from nova_workers.domain.archive.sql.tables import KeptTable
from nova_workers.domain.memories.sql import MAX_CONTENT_CHARS
from nova_workers.domain.skills.rules.format import check_files, parse_skill_md
from nova_workers.domain.triggers.rules.occurrences import check_jitter
from nova_workers.domain.triggers.rules.schedules import parse_schedule

MAX_TASK_ID: Final = MAX_COUNT

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_AGENT_ID = re.compile(rf"(?=.{{1,64}}\Z){AGENT_ID_PATTERN.removeprefix('^').removesuffix('$')}\Z")
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_OTHER_KEYS: Final = frozenset(
    {"agents", "agent_versions", "skills", "skill_files", "tasks", "compactions", "thread_heads", "thread_states"}
)
"""Tables whose keys are not our ids."""
_ENDED: Final = {"runs": ENDED_RUNS, "turns": ENDED_TURNS}


@dataclass(frozen=True, slots=True)
class AgentChecks:
    """Checks of agents beyond their form.

    Attributes:
        validate: Raises `InvalidInput` for an agent that this fleet cannot run, and `Forbidden` for one that exceeds a
            ceiling of the tenant.
        check_author: Raises `Forbidden` for a version with a right that the author of the import lacks. Its first
            argument names the row.
    """

    validate: Callable[[AgentSpec], None]
    check_author: Callable[[str, AgentSpec], None]


def checked_row(kept: KeptTable, row: JsonObject, agents: AgentChecks) -> JsonObject:
    """Return a row in the form in which it is written.

    Raises:
        InvalidInput: It is invalid; the message names table and column.
    """
    table = kept.name
    unknown = row.keys() - set(kept.columns)
    if unknown:
        raise wrong(table, f"there is no column {min(unknown)!r}")
    if table not in _OTHER_KEYS and not _is_id(row.get("id")):
        raise wrong(f"{table}.id", f"{row.get('id')!r:.80} is no id")
    for column in kept.times:
        if row.get(column) is not None and not _is_moment(row[column]):
            raise wrong(f"{table}.{column}", f"{row[column]!r:.80} is no time as RFC 3339 has it")
    if table in _ENDED and row.get("status") not in _ENDED[table]:
        raise wrong(f"{table}.status", f"{row.get('status')!r:.80}; only {table} that ended are imported")
    checked = _checked_kind(table, row, agents)
    check_values(kept, checked)
    return checked


def _checked_kind(table: str, row: JsonObject, agents: AgentChecks) -> JsonObject:
    match table:
        case "agents":
            _check_agent(row, agents)
        case "agent_versions":
            # A run that is tried again keeps its version, so a version is as good as an agent.
            spec = _spec(table, row.get("agent_id"), row)
            agents.check_author(f"agent_versions.{row.get('agent_id')}.{row.get('version')}.", spec)
        case "skills":
            return _skill(row)
        case "skill_files":
            _check_skill_file(row)
        case "deliveries":
            _check_delivery(row)
        case "triggers":
            _check_trigger(row)
        case "memories" if len(str(row.get("content"))) > MAX_CONTENT_CHARS:
            raise wrong("memories.content", f"it has more than {MAX_CONTENT_CHARS} characters")
        case "thread_states":
            _check_state(row)
        case "tasks" if not _is_task_id(row.get("id")):
            raise wrong("tasks.id", f"{row.get('id')!r:.80} is no number of a task")
        case _:
            pass
    return row


def _check_agent(row: JsonObject, agents: AgentChecks) -> None:
    agent_id = row.get("id")
    spec = _spec("agents", agent_id, row)
    # Earlier versions are history, and may name what no longer exists. The current one must be valid.
    if row.get("deleted_at") is None:
        try:
            check_agent_id(str(agent_id))
            check_spec(spec)
        except InvalidInput as error:
            raise wrong(f"agents {agent_id!r}", error.message.removesuffix(".")) from error
        agents.validate(spec)
    agents.check_author(f"agents.{agent_id}.", spec)


def _spec(table: str, agent_id: object, row: JsonObject) -> AgentSpec:
    """Return the configuration in a row of an agent, or of a version of it."""
    if not isinstance(agent_id, str) or _AGENT_ID.match(agent_id) is None:
        raise wrong(table, f"{agent_id!r:.80} is no id of an agent")
    version = row.get("version")
    if type(version) is not int or version < 1:
        raise wrong(f"{table} {agent_id!r}", f"version: {version!r:.80} is no whole number from 1 on")
    try:
        # Strict, as when it was written: SQL reads it too, and does not accept 30.0 as a number of days.
        return AgentSpec.model_validate_json(json.dumps(row.get("spec")), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise wrong(f"{table} {agent_id!r}", f"spec.{place_of(first)}: {problem_of(first, AgentSpec)}") from error


def _skill(row: JsonObject) -> JsonObject:
    front, body = parse_skill_md(str(row.get("skill_md")))
    if front.name != row.get("name"):
        raise wrong("skills.name", f"SKILL.md calls {row.get('name')!r:.80} {front.name!r}")
    return {**row, "description": front.description, "body": body, "front_matter": front.model_dump(mode="json")}


def _check_trigger(row: JsonObject) -> None:
    """Check a trigger when it is written, because no person sees an error when it fires."""
    given = {name: row[name] for name in TriggerCreate.model_fields if name in row}
    try:
        trigger = TriggerCreate.model_validate(given)
    except ValidationError as error:
        raise unreadable("triggers", error) from error
    made_at, changed_at = (_moment(row, column) for column in ("created_at", "updated_at"))
    fires = row.get("next_fire_at") is not None
    if fires and not (trigger.enabled and row.get("deleted_at") is None):
        raise wrong("triggers.next_fire_at", "a trigger that was deleted or switched off does not fire")
    try:
        schedule = parse_schedule(
            trigger.kind,
            trigger.schedule,
            str(trigger.timezone),
            starts_at=trigger.starts_at,
            ends_at=trigger.ends_at,
        )
        if fires:
            check_jitter(schedule, trigger.jitter_s, after=changed_at, made_at=made_at)
    except InvalidInput as error:
        raise wrong(f"triggers.{error.fields.get('field', 'schedule')}", error.message.removesuffix(".")) from error


def _moment(row: JsonObject, column: str) -> datetime:
    """Return a time of a trigger, if any, whose form was already checked."""
    if row.get(column) is None:
        raise wrong(f"triggers.{column}", "it is missing")
    return datetime.fromisoformat(row[column])


def _check_delivery(row: JsonObject) -> None:
    if (row.get("target"), row.get("webhook_id")) != ("user", None):
        # Any other target is a webhook, which may be another tenant's.
        raise wrong("deliveries.target", f"{row.get('target')!r:.80}; only what stands in the inbox is imported")
    if row.get("kind") == "run_completed":
        raise wrong("deliveries.kind", "'run_completed' goes to webhooks and never stands in the inbox")


def _check_state(row: JsonObject) -> None:
    state = row.get("state")
    problem = size_problem(state) if isinstance(state, dict) else "it is no object"
    if problem is not None:
        raise wrong("thread_states.state", problem)


def _check_skill_file(row: JsonObject) -> None:
    try:
        content = bytes.fromhex(str(row.get("content")).removeprefix("\\x"))
    except ValueError as error:
        raise wrong("skill_files.content", "it is not hexadecimal") from error
    check_files([SkillFile(str(row.get("path")), content)])


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.match(value) is not None


def _is_moment(value: object) -> bool:
    """Return whether a value is a time. Postgres also accepts ``yesterday`` and ``infinity``."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return moment is not None and moment.tzinfo is not None and _FIRST_YEAR <= moment.year <= _LAST_YEAR


def _is_task_id(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_TASK_ID
