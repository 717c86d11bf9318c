"""What changed of a tenant's things, for those who follow it: rows that the database adds in the changes' transactions.

A row names the thing and the kind of its change. What the thing is now, its readers read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Identity,
    MetaData,
    PrimaryKeyConstraint,
    event,
    text,
)
from sqlmodel import Field

from nova_workers.base.vocabulary import EXTERNAL_WAITS, ChangeSubject, sql_list

from .base import Table, metadata
from .columns import big, id_ref, string


class Change(Table, table=True):
    """One change of a thing that people follow. Its readers take it once all older transactions have ended."""

    __tablename__ = "changes"
    __table_args__ = (PrimaryKeyConstraint("tenant_id", "xact", "id"),)

    tenant_id: str = id_ref(comment="Empty for a pause of the fleet")
    xact: int = big(default=None, comment="The transaction, as pg_current_xact_id has it")
    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), nullable=False))
    # Without a CHECK, which Postgres would parse at each change of a run: only the functions below write it.
    subject: str = string(comment="base.vocabulary.ChangeSubject")
    subject_id: str = id_ref()
    change: str = string(comment="Its new state, or a verb")
    agent_id: str | None = id_ref(null=True)
    thread_id: str | None = id_ref(null=True)
    at: datetime = Field(
        default=None,
        sa_column=Column(DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
    )


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """What the changes of a table are. Each expression is SQL over `NEW`, or `OLD` of a row that was deleted.

    Attributes:
        subject: The kind of the thing that a row is, or belongs to.
        when: By statement, such as ``UPDATE OF status``, the condition under which it changes the thing.
        id: The thing's id.
        change: The word for the change.
        agent: The id of the agent that the thing is of.
        thread: The id of its thread.
    """

    subject: ChangeSubject
    when: Mapping[str, str]
    id: str = "NEW.id"
    change: str = "CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END"
    agent: str = "NULL"
    thread: str = "NULL"


def _differs(*columns: str) -> str:
    names = ", ".join(columns)
    return " OR ".join(f"OLD.{name} IS DISTINCT FROM NEW.{name}" for name in names.split(", "))


_ASKS = f"NEW.kind IN {sql_list(EXTERNAL_WAITS)}"

CHANGES: Final[Mapping[str, ChangeRule]] = {
    # An import inserts runs that have ended.
    "runs": ChangeRule(
        "run",
        {"INSERT": "NEW.finished_at IS NULL", "UPDATE OF status, hold": _differs("status", "hold")},
        change="CASE WHEN NEW.hold IS NULL THEN NEW.status ELSE 'held' END",
        agent="NEW.agent_id",
        thread="NEW.thread_id",
    ),
    "run_waits": ChangeRule(
        "wait",
        {
            "INSERT": f"NEW.status = 'open' AND {_ASKS}",
            "UPDATE OF status": f"{_ASKS} AND ({_differs('status')})",
        },
        id="NEW.run_id",
        change="NEW.status",
    ),
    "threads": ChangeRule(
        "thread",
        {"UPDATE OF title, pinned, archived, deleted_at": _differs("title", "pinned", "archived", "deleted_at")},
        change="CASE WHEN NEW.deleted_at IS NULL THEN 'updated' ELSE 'deleted' END",
        agent="NEW.agent_id",
        thread="NEW.id",
    ),
    "orchestrations": ChangeRule(
        "orchestration",
        {"INSERT": "true", "UPDATE OF finished_at": _differs("finished_at")},
        change="CASE WHEN NEW.finished_at IS NOT NULL THEN 'finished' WHEN TG_OP = 'INSERT' THEN 'created' "
        "ELSE 'continued' END",
        agent="NEW.agent_id",
        thread="NEW.thread_id",
    ),
    "orchestration_agents": ChangeRule(
        "orchestration",
        {"INSERT": "true", "UPDATE OF state": _differs("state")},
        id="NEW.orchestration_id",
        change="'agents'",
    ),
    "tasks": ChangeRule(
        "task",
        {"INSERT": "true", "UPDATE": _differs("revision", "status", "parked_reason", "working_run_id")},
        id="NEW.id::text",
        change="CASE WHEN TG_OP = 'INSERT' THEN 'created' WHEN OLD.status <> NEW.status THEN NEW.status "
        "WHEN OLD.parked_reason IS NULL AND NEW.parked_reason IS NOT NULL THEN 'parked' ELSE 'updated' END",
        agent="NEW.owner_agent_id",
        thread="NEW.thread_id",
    ),
    "triggers": ChangeRule(
        "trigger",
        {
            "INSERT": "true",
            # The next occurrence moves with each firing, which is a change of its own.
            "UPDATE": _differs("updated_at", "enabled", "paused_reason", "failures", "deleted_at"),
        },
        change="CASE WHEN NEW.deleted_at IS NOT NULL THEN 'deleted' WHEN TG_OP = 'INSERT' THEN 'created' "
        "WHEN OLD.paused_reason IS NULL AND NEW.paused_reason IS NOT NULL THEN 'paused' ELSE 'updated' END",
        agent="NEW.agent_id",
        thread="NEW.thread_id",
    ),
    "trigger_firings": ChangeRule(
        "trigger",
        {"INSERT": "true", "UPDATE OF outcome": _differs("outcome")},
        id="NEW.trigger_id",
        change="NEW.outcome",
    ),
    "deliveries": ChangeRule(
        "delivery",
        {
            "INSERT": "NEW.target = 'user'",
            "UPDATE OF status": f"NEW.target = 'user' AND ({_differs('status')})",
        },
        change="CASE TG_OP WHEN 'INSERT' THEN 'created' ELSE NEW.status END",
        agent="NEW.agent_id",
        thread="NEW.thread_id",
    ),
    "webhooks": ChangeRule(
        "webhook",
        {
            "INSERT": "true",
            "UPDATE": _differs("updated_at", "enabled", "disabled_reason", "rests_until"),
            "DELETE": "true",
        },
        agent="NEW.agent_id",
    ),
    "switches": ChangeRule(
        "pause",
        {"INSERT": "NEW.scope <> 'rename'", "DELETE": "OLD.scope <> 'rename'"},
        id="NEW.scope",
        change="CASE TG_OP WHEN 'DELETE' THEN 'resumed' ELSE 'paused' END",
        agent="NULLIF(NEW.target, '')",
    ),
    "feedback": ChangeRule(
        "feedback",
        {"INSERT": "true", "UPDATE": _differs("score", "label", "comment"), "DELETE": "true"},
        agent="NEW.agent_id",
        thread="NEW.thread_id",
    ),
    "rollouts": ChangeRule(
        "rollout",
        {"INSERT": "true", "UPDATE": _differs("status", "step", "judged")},
        change="NEW.status",
        agent="NEW.agent_id",
    ),
}
"""The tables whose changes are recorded. A change here needs `record_changes` in a migration."""


def record_changes(tables: Iterable[str]) -> list[str]:
    """Return the statements that make the triggers of tables, and their functions. They may be repeated."""
    return [statement for table, rule in CHANGES.items() if table in tables for statement in _recording(table, rule)]


def forget_changes(tables: Iterable[str]) -> list[str]:
    """Return the statements that undo `record_changes`."""
    return [
        statement
        for table, rule in CHANGES.items()
        if table in tables
        for row in _rows_of(rule)
        for statement in (
            *(f"DROP TRIGGER {_trigger(operation)} ON {table}" for operation in _of_row(rule, row)),
            f"DROP FUNCTION {_function(table, row)}()",
        )
    ]


def _recording(table: str, rule: ChangeRule) -> list[str]:
    made: list[str] = []
    for row in _rows_of(rule):
        values = (rule.id, rule.change, rule.agent, rule.thread)
        id, change, agent, thread = (value.replace("NEW.", f"{row}.") for value in values)
        # With the rights of the session, whose policy keeps it to its own tenant. The schema is named, since a search
        # path of the function's own would be set and reset at each call.
        made.append(f"""
CREATE OR REPLACE FUNCTION {_function(table, row)}() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES ({row}.tenant_id, pg_current_xact_id()::text::bigint, '{rule.subject}', {id},
            {change},
            {agent}, {thread});
    RETURN NULL;
END
$$
""")
        made += [
            # The condition comes before the call, so that other statements do not pay for it.
            f"CREATE OR REPLACE TRIGGER {_trigger(operation)} AFTER {operation} ON {table} FOR EACH ROW "
            f"WHEN ({when}) EXECUTE FUNCTION {_function(table, row)}()"
            for operation, when in _of_row(rule, row).items()
        ]
    return made


def _rows_of(rule: ChangeRule) -> Sequence[str]:
    return ("NEW", "OLD") if "DELETE" in rule.when else ("NEW",)


def _of_row(rule: ChangeRule, row: str) -> Mapping[str, str]:
    return {operation: when for operation, when in rule.when.items() if (operation == "DELETE") == (row == "OLD")}


def _trigger(operation: str) -> str:
    return f"record_{operation.partition(' ')[0].lower()}"


def _function(table: str, row: str) -> str:
    return f"record_{'end' if row == 'OLD' else 'change'}_of_{table}"


@event.listens_for(metadata, "after_create")
def _record_created(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for statement in record_changes({table.name for table in tables}):
        connection.exec_driver_sql(statement)
