"""The tables of an archive in the order in which rows can be inserted, and the tables that it leaves out and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from nova_workers.base.vocabulary import ENDED_RUNS, ENDED_TURNS, sql_list
from nova_workers.ledger.database import Connection

# The catalog rather than the models, so that the API process need not import SQLAlchemy.
_COLUMNS = """
SELECT table_name, column_name, data_type, is_generated = 'ALWAYS' AS computed
  FROM information_schema.columns
 WHERE table_schema = current_schema() AND table_name = ANY(:tables)
 ORDER BY table_name, ordinal_position
"""

_INTEGERS = {"bigint": 64, "integer": 32, "smallint": 16}


class Column(NamedTuple):
    """A column as ``information_schema.columns`` describes it."""

    name: str
    data_type: str
    computed: bool = False


@dataclass(frozen=True)
class KeptTable:
    """A table of an archive.

    Attributes:
        name: Of the table; ``x`` stands for it in the expressions below.
        order: SQL: the order of its rows.
        join: SQL: other tables that the expressions below need.
        only: SQL: which rows.
        agent: SQL: the agent in whose folder a row belongs, if any.
        thread: SQL: the thread that a row belongs to, if any.
        ended: SQL: of a task's rows, whether the task has ended.
        omit: Columns that have no meaning in another fleet, or must not be in an archive.
    """

    name: str
    order: str
    join: str = ""
    only: str = "true"
    agent: str = "NULL"
    thread: str = "NULL"
    ended: str = "NULL"
    omit: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    """The columns that rows of an archive have."""
    left_out: tuple[str, ...] = ()
    """The columns that rows of an archive do not have."""
    exact: tuple[str, ...] = ()
    """Decimal columns, written as strings: JSON numbers would lose digits."""
    counts: tuple[tuple[str, int], ...] = ()
    """Integer columns, with their numbers of bits."""
    times: tuple[str, ...] = ()
    """Timestamp columns."""
    bytes: tuple[str, ...] = ()
    """Binary columns, hexadecimal in an archive."""


_HAS_ENDED = "{}.status IN ('done', 'canceled')"
_OF_TASK = "JOIN tasks k ON k.tenant_id = x.tenant_id AND k.id = x.task_id"
_OF_THREAD = "JOIN threads h ON h.id = x.thread_id"
_OF_TURN = (
    f"JOIN turns t ON t.id = x.turn_id AND t.status IN {sql_list(ENDED_TURNS)} JOIN threads h ON h.id = t.thread_id"
)
_OF_RUN = f"JOIN runs r ON r.id = x.run_id AND r.status IN {sql_list(ENDED_RUNS)} JOIN threads h ON h.id = r.thread_id"

_HOLD = ("hold", "hold_detail", "held_since", "held_until")
"""Why a run is not claimed now: of this fleet and its keys."""

KEPT: Final = (
    # Former ids are left out: nothing in the archive has one.
    KeptTable("agents", "x.id", only="x.renamed_to IS NULL", agent="x.id", omit=frozenset({"renamed_to", "directory"})),
    KeptTable(
        "agent_versions",
        "x.agent_id, x.version",
        join="JOIN agents a ON a.tenant_id = x.tenant_id AND a.id = x.agent_id AND a.renamed_to IS NULL",
        agent="x.agent_id",
    ),
    KeptTable("skills", "x.name"),
    KeptTable("skill_files", "x.skill_name, x.path"),
    KeptTable("memories", "x.id"),
    KeptTable("tasks", "x.id", ended=_HAS_ENDED.format("x")),
    KeptTable("task_steps", "x.task_id, x.position, x.id", join=_OF_TASK, ended=_HAS_ENDED.format("k")),
    KeptTable("task_resources", "x.task_id, x.id", join=_OF_TASK, ended=_HAS_ENDED.format("k")),
    KeptTable("task_changes", "x.task_id, x.revision, x.id", join=_OF_TASK, ended=_HAS_ENDED.format("k")),
    KeptTable("triggers", "x.agent_id, x.id", agent="x.agent_id"),
    KeptTable("trigger_firings", "g.agent_id, x.id", join="JOIN triggers g ON g.id = x.trigger_id", agent="g.agent_id"),
    KeptTable("notes", "x.agent_id, x.id", agent="x.agent_id"),
    KeptTable("sent_files", "x.agent_id, x.id", agent="x.agent_id"),
    # The inbox; deliveries to webhooks and channels are left out. So are questions of open waits, since open waits are
    # left out too.
    KeptTable(
        "deliveries",
        "x.id",
        only="x.target = 'user' AND NOT (x.kind IN ('question', 'approval') AND x.status = 'pending')",
    ),
    KeptTable(
        "threads",
        "x.id",
        agent="x.agent_id",
        thread="x.id",
        # Keys and rollouts are in no archive.
        omit=frozenset({"active_run_id", "session_id", "purge_at", "orchestration_id", "created_by", "rollout_id"}),
    ),
    KeptTable("thread_states", "x.thread_id", join=_OF_THREAD, agent="h.agent_id", thread="h.id"),
    KeptTable(
        "runs",
        "x.thread_id, x.seq",
        join=f"{_OF_THREAD} LEFT JOIN runs w ON w.id = x.merged_into",
        # A message that was merged into an open turn is left out with that turn.
        only=f"x.status IN {sql_list(ENDED_RUNS)} AND (w.id IS NULL OR w.status IN {sql_list(ENDED_RUNS)})",
        agent="h.agent_id",
        thread="h.id",
        omit=frozenset({"lease_expires_at", "worker_id", "traceparent", *_HOLD}),
    ),
    KeptTable(
        "turns",
        "x.thread_id, x.depth, x.id",
        join=_OF_THREAD,
        only=f"x.status IN {sql_list(ENDED_TURNS)}",
        agent="h.agent_id",
        thread="h.id",
        omit=frozenset({"rollout_id"}),
    ),
    KeptTable("messages", "h.id, t.depth, t.id, x.seq", join=_OF_TURN, agent="h.agent_id", thread="h.id"),
    KeptTable(
        "tool_calls", "h.id, t.depth, t.id, x.step, x.sequence", join=_OF_TURN, agent="h.agent_id", thread="h.id"
    ),
    KeptTable("compactions", "h.id, t.depth, t.id", join=_OF_TURN, agent="h.agent_id", thread="h.id"),
    KeptTable("usage", "h.id, t.depth, t.id", join=_OF_TURN, agent="h.agent_id", thread="h.id"),
    KeptTable("feedback", "h.id, r.seq, x.id", join=_OF_RUN, agent="h.agent_id", thread="h.id"),
    KeptTable("run_waits", "h.id, r.seq, x.id", join=_OF_RUN, agent="h.agent_id", thread="h.id"),
    KeptTable(
        "thread_heads",
        "x.thread_id, x.id",
        join=_OF_THREAD,
        agent="h.agent_id",
        thread="h.id",
        omit=frozenset({"id"}),
    ),
)

LEFT_OUT: Final[Mapping[str, str]] = {
    "tenants": "an import writes into a tenant that exists",
    "api_keys": "a key belongs to one fleet",
    "secrets": "their names only: values are encrypted for this fleet",
    "orchestration_configs": "programs, profiles and models of this fleet; `nova orchestrations config show` writes it",
    "model_rankings": "computed again from runs",
    "model_judgements": "asked again, if the configuration names a judge",
    "work_order_policies": "models and caps of this fleet; `nova orders policies show` writes one",
    "work_order_secrets": "encrypted for this fleet",
    "webhooks": "an address of this fleet, and a secret encrypted for it",
    "push_configs": "addresses of clients of this fleet, and secrets encrypted for it",
    "sign_ins": "sessions of people at this fleet",
    "run_lists": "belong to keys of this fleet",
    "datasets": "`nova datasets export` writes one",
    "dataset_examples": "with their dataset",
    "samplings": "`nova sampling set` begins one",
    "run_samples": "their judge ran on this fleet",
    "evaluations": "their runs are gone with their ephemeral threads",
    "evaluation_trials": "with their evaluation",
    "evaluation_judgements": "with their evaluation",
    "rollouts": "compare runs of this fleet; the versions are in the archive",
    "people": "they are known to this fleet's provider of single sign-on",
    "channel_pairings": "rights of people of this fleet",
    "leases": "belong to processes beside this fleet",
    "idempotency_keys": "belong to requests to this fleet, for days",
    "project_items": "a project is applied to each fleet from its repository",
    "switches": "a pause is a state of this fleet",
    "run_attempts": "name workers of this fleet",
    "model_calls": "how this fleet asked models",
    "request_parts": "with their model calls",
    "worker_drains": "are those of this fleet's workers",
    "worker_installs": "are those of this fleet's workers",
    "worker_sessions": "are those of this fleet's workers",
    "audit_events": "what keys and agents did in this fleet",
    "audit_chains": "with its records",
    "effects": "made again by the import",
    "changes": "what was new in this fleet, for a day",
    "embeddings": "made again after the import",
    "message_texts": "made again after the import",
    "upkeep_cursors": "progress of this fleet's maintenance",
    "orchestrations": "run to their end in this fleet; their threads are in the archive",
    "orchestration_agents": "with their orchestration",
    "orchestration_messages": "with their orchestration",
    "work_orders": "encrypted for this fleet while they run; their results belong to requests to this fleet",
    "work_order_keys": "with their order",
    "work_order_parts": "with their order",
    "work_order_trail": "with their order",
    "engine_sessions": "made again from the messages at the next turn",
}
"""Tables that an archive leaves out, and why."""

_ID_COLUMNS = {
    "thread_id": "threads",
    "turn_id": "turns",
    "run_id": "runs",
    "merged_into": "runs",
    "trigger_id": "triggers",
}

_OWNED: Final = frozenset(
    {
        ("thread_states", "thread_id"),
        ("runs", "thread_id"),
        ("turns", "thread_id"),
        ("turns", "run_id"),
        ("messages", "thread_id"),
        ("messages", "turn_id"),
        ("tool_calls", "turn_id"),
        ("compactions", "turn_id"),
        ("usage", "run_id"),
        ("usage", "turn_id"),
        ("usage", "thread_id"),
        ("feedback", "run_id"),
        ("feedback", "thread_id"),
        ("run_waits", "run_id"),
        ("thread_heads", "thread_id"),
        ("trigger_firings", "trigger_id"),
    }
)
_NOT_FOLLOWED: Final = frozenset(
    {
        ("sent_files", "thread_id"),
        ("sent_files", "run_id"),
        ("compactions", "summarized_through_turn_id"),
        ("compactions", "first_kept_turn_id"),
    }
)
"""References that are shown, or compared with a thread's own turns: they may lead nowhere."""
_PRESENT: Final[Mapping[str, str]] = {
    "turns": f"p.status IN {sql_list(ENDED_TURNS)}",
    "runs": f"p.status IN {sql_list(ENDED_RUNS)} AND NOT EXISTS (SELECT FROM runs w WHERE w.id = p.merged_into"
    f" AND w.status NOT IN {sql_list(ENDED_RUNS)})",
}
"""SQL: by table, which of its rows ``p`` an archive has, as `KEPT` says."""


async def load_tables(connection: Connection) -> dict[str, KeptTable]:
    """Return the tables of an archive with their columns, by name, in the order in which rows can be written."""
    rows = await connection.fetch(_COLUMNS, tables=[table.name for table in KEPT])
    found: dict[str, list[Column]] = {table.name: [] for table in KEPT}
    for row in rows:
        found[row["table_name"]].append(Column(row["column_name"], row["data_type"], row["computed"]))
    return {table.name: shaped(table, found[table.name]) for table in KEPT}


def shaped(table: KeptTable, columns: Iterable[Column]) -> KeptTable:
    """Return a table with its columns by use."""
    columns = tuple(columns)
    left_out = table.omit | {"tenant_id"}
    # The database computes generated columns itself.
    kept = [column for column in columns if column.name not in left_out and not column.computed]
    return replace(
        table,
        columns=tuple(column.name for column in kept),
        left_out=tuple(column.name for column in columns if column not in kept),
        exact=tuple(column.name for column in kept if column.data_type == "numeric"),
        counts=tuple((column.name, _INTEGERS[column.data_type]) for column in kept if column.data_type in _INTEGERS),
        times=tuple(column.name for column in columns if column.data_type == "timestamp with time zone"),
        bytes=tuple(column.name for column in columns if column.data_type == "bytea"),
    )


class Reference(NamedTuple):
    """A column that names a thread, turn, run or trigger.

    Most are not foreign keys, and a foreign key does not check tenants, so an import checks them itself.
    """

    table: str
    column: str
    parent: str

    @property
    def owned(self) -> bool:
        """Whether the row belongs to the one that it names, which so precedes it in each archive."""
        return (self.table, self.column) in _OWNED

    @property
    def present(self) -> str:
        """SQL: whether a row ``x`` names one that is in the archive of its tenant."""
        return (
            f"EXISTS (SELECT FROM {self.parent} p WHERE p.id = x.{self.column} AND p.tenant_id = x.tenant_id"
            f" AND {_PRESENT.get(self.parent, 'true')})"
        )


def references(tables: Iterable[KeptTable]) -> tuple[Reference, ...]:
    """Return the references of tables that are followed."""
    return tuple(
        Reference(table.name, column, parent)
        for table in tables
        for column in table.columns
        for ending, parent in _ID_COLUMNS.items()
        if (column == ending or column.endswith(f"_{ending}")) and (table.name, column) not in _NOT_FOLLOWED
    )
