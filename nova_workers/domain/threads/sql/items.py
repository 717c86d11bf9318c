"""Reads what items of a run or of a conversation are made of: one statement, whatever the number of turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import EXTERNAL_WAITS, ToolCallStatus
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.run_options import RunOptions, StoredOptions
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import WaitRequest, wait_adapter
from nova_workers.ledger.database import Connection, Row

# A file belongs to the step that was committed next after it was sent.
_CONTENTS = """
SELECT t.id, t.run_id, t.steps,
       (SELECT jsonb_path_query_array(o.options, '$.client_tools[*].name')
          FROM runs o WHERE o.id = t.run_id AND o.tenant_id = t.tenant_id) AS client_tools,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'kind', m.kind, 'step', m.step, 'run_id', m.run_id, 'seq', m.seq, 'event_id', m.event_id,
                   'content', CASE WHEN m.kind <> 'tool_results' THEN m.content END) ORDER BY m.seq), '[]')
          FROM messages m
         WHERE m.turn_id = t.id AND (:from_step::int IS NULL OR m.step >= :from_step)) AS messages,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'call_id', c.call_id, 'tool_name', c.tool_name, 'params', c.params, 'status', c.status,
                   'result', c.result, 'error', c.error, 'step', c.step) ORDER BY c.sequence), '[]')
          FROM tool_calls c
         WHERE c.turn_id = t.id AND (:from_step::int IS NULL OR c.step >= :from_step)) AS calls,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', w.id, 'tool_call_id', w.tool_call_id, 'request', w.request, 'status', w.status) ORDER BY w.id),
                        '[]')
          FROM run_waits w WHERE w.run_id = t.run_id) AS waits,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', f.id, 'name', f.name, 'media_type', f.media_type, 'size_bytes', f.size_bytes,
                   'caption', f.caption,
                   'step', COALESCE((SELECT min(m.step) FROM messages m
                                      WHERE m.turn_id = t.id AND m.created_at >= f.created_at), t.steps)
               ) ORDER BY f.id), '[]')
          FROM sent_files f WHERE f.tenant_id = t.tenant_id AND f.run_id = t.run_id) AS files
  FROM turns t
"""

_OF_RUN = f"""
{_CONTENTS}
  JOIN runs r ON r.turn_id = t.id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

_OF_RUNS = f"""
{_CONTENTS}
  JOIN runs r ON r.turn_id = t.id AND r.id = t.run_id
 WHERE r.tenant_id = :tenant_id AND r.id = ANY(:run_ids::text[])
"""

_OF_TURNS = f"""
{_CONTENTS}
 WHERE t.tenant_id = :tenant_id AND t.id = ANY(:turn_ids::text[]) AND t.type = 'normal'
 ORDER BY t.depth
"""

_MESSAGE = "SELECT content, merged_into FROM runs WHERE tenant_id = :tenant_id AND id = :run_id"


# Before it is the turn that the run's continues, or will continue if it is queued; of compactions, the one that they
# summarize. A message that joined a turn continues that turn's run. A step that waits has no usage of its own yet: the
# turn's is up to it.
_FACTS = """
SELECT r.options, t.ephemeral, COALESCE(r.merged_into, b.run_id) AS before_run_id,
       (SELECT max(c.step)
          FROM run_waits w JOIN tool_calls c ON c.turn_id = b.id AND c.call_id = w.tool_call_id
         WHERE w.run_id = b.run_id AND r.merged_into IS NULL
           AND w.request ->> 'kind' = ANY(:external::text[])) AS before_step,
       jsonb_build_object('input_tokens', u.input_tokens, 'output_tokens', u.output_tokens,
                          'cache_read_tokens', u.cache_read_tokens, 'cache_write_tokens', u.cache_write_tokens,
                          'reasoning_tokens', u.reasoning_tokens) AS used,
       (SELECT jsonb_object_agg(m.step, m.used)
          FROM messages m WHERE m.turn_id = u.id AND m.used IS NOT NULL AND m.step IS NOT NULL) AS used_at
  FROM runs r
  JOIN threads t ON t.id = r.thread_id
  LEFT JOIN turns u ON u.id = r.turn_id
  LEFT JOIN turns p ON p.id = CASE WHEN u.id IS NULL THEN t.head_turn_id ELSE u.parent_turn_id END
  LEFT JOIN turns b ON b.id = CASE WHEN p.type = 'normal' THEN p.id ELSE p.parent_turn_id END
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id AND t.deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the ledger knows of a run beside its view.

    Attributes:
        options: As they were given; None without any.
        before_run_id: The run that it continues; None where it begins a conversation, or continues an imported one.
        before_step: The last step of that run in which it asked its caller or a person.
        used: The tokens of the turn so far; None before it begins.
        used_at: The same at the end of each step, but for the last.
    """

    options: RunOptions | None
    ephemeral: bool
    before_run_id: str | None
    before_step: int | None
    used: TokenUsage | None
    used_at: Mapping[int, TokenUsage]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a turn.

    Attributes:
        step: None for what began the turn.
        run_id: The run that brought it, if it came from outside.
        event: The id of the live event that closed it, or an earlier one; see `runs.sql.replay`.
        content: Empty for results of tools, which the calls have.
    """

    kind: Literal["query", "response", "tool_results", "steering", "summary"]
    step: int | None
    seq: int
    run_id: str | None
    event: EventCursor | None
    content: tuple[ContentBlock, ...]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call of a turn."""

    call_id: str
    tool_name: str
    params: JsonObject
    status: ToolCallStatus
    step: int
    result: tuple[ContentBlock, ...] | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StoredWait:
    """What a call waited for, or waits for."""

    id: str
    tool_call_id: str
    request: WaitRequest
    status: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that the agent sent during a step."""

    id: str
    name: str
    media_type: str
    size_bytes: int
    caption: str | None
    step: int


@dataclass(frozen=True, slots=True)
class TurnContents:
    """What a turn has so far.

    Attributes:
        run_id: None for a turn that took place elsewhere.
        steps: How many steps are committed as a whole.
        client_tools: Names of the tools that the run's caller executes.
    """

    turn_id: str
    run_id: str | None
    steps: int
    messages: tuple[StoredMessage, ...]
    calls: tuple[StoredCall, ...] = ()
    waits: tuple[StoredWait, ...] = ()
    files: tuple[StoredFile, ...] = ()
    client_tools: frozenset[str] = frozenset()


class RunMessage(NamedTuple):
    """The message of a run."""

    content: tuple[ContentBlock, ...]
    merged_into: str | None
    """The run whose turn it joined."""


async def load_run_contents(
    connection: Connection, tenant_id: str, run_id: str, *, from_step: int | None = None
) -> TurnContents | None:
    """Return the contents of a run's turn; None if it has none yet, or if its message joined another run's turn.

    With `from_step`, what was before that step is left out, and the message that began the turn.
    """
    row = await connection.fetchrow(_OF_RUN, tenant_id=tenant_id, run_id=run_id, from_step=from_step)
    return None if row is None or row["run_id"] != run_id else _contents(row)


async def load_contents_of_runs(
    connection: Connection, tenant_id: str, run_ids: Collection[str]
) -> tuple[TurnContents, ...]:
    """Return the contents of runs' turns, without those that have none yet, or joined another run's."""
    rows = await connection.fetch(_OF_RUNS, tenant_id=tenant_id, run_ids=list(run_ids), from_step=None)
    return tuple(map(_contents, rows))


async def get_run_facts(connection: Connection, tenant_id: str, run_id: str) -> RunFacts:
    """Return the options of a run, the run before it and its tokens by step.

    Raises:
        NotFound: There is no such run, or its thread was deleted.
    """
    row = existing(
        await connection.fetchrow(_FACTS, tenant_id=tenant_id, run_id=run_id, external=list(EXTERNAL_WAITS)),
        "run",
        run_id,
    )
    used = row["used"]
    return RunFacts(
        options=None if row["options"] is None else StoredOptions.model_validate(row["options"]),
        ephemeral=row["ephemeral"],
        before_run_id=row["before_run_id"],
        before_step=row["before_step"],
        used=None if used["input_tokens"] is None else TokenUsage(**used),
        used_at={int(step): TokenUsage(**each) for step, each in (row["used_at"] or {}).items()},
    )


async def load_turn_contents(
    connection: Connection, tenant_id: str, turn_ids: Sequence[str]
) -> tuple[TurnContents, ...]:
    """Return the contents of turns, oldest first, without those of compactions."""
    rows = await connection.fetch(_OF_TURNS, tenant_id=tenant_id, turn_ids=list(turn_ids), from_step=None)
    return tuple(map(_contents, rows))


async def load_run_message(connection: Connection, tenant_id: str, run_id: str) -> RunMessage | None:
    """Return the message that a run was submitted with; None if there is no such run."""
    row = await connection.fetchrow(_MESSAGE, tenant_id=tenant_id, run_id=run_id)
    return None if row is None else RunMessage(tuple(row["content"]), row["merged_into"])


def _contents(row: Row) -> TurnContents:
    return TurnContents(
        turn_id=row["id"],
        run_id=row["run_id"],
        steps=row["steps"],
        messages=tuple(map(_message, row["messages"])),
        calls=tuple(map(_call, row["calls"])),
        waits=tuple(
            StoredWait(wait["id"], wait["tool_call_id"], wait_adapter.validate_python(wait["request"]), wait["status"])
            for wait in row["waits"]
        ),
        files=tuple(StoredFile(**file) for file in row["files"]),
        client_tools=frozenset(row["client_tools"] or ()),
    )


def _message(row: dict[str, Any]) -> StoredMessage:
    return StoredMessage(
        kind=row["kind"],
        step=row["step"],
        seq=row["seq"],
        run_id=row["run_id"],
        event=None if row["event_id"] is None else EventCursor.parse(row["event_id"]),
        content=tuple(row["content"] or ()),
    )


def _call(row: dict[str, Any]) -> StoredCall:
    result = row["result"]
    return StoredCall(
        call_id=row["call_id"],
        tool_name=row["tool_name"],
        params=row["params"] or {},
        status=row["status"],
        step=row["step"],
        result=None if result is None else tuple(result),
        error=row["error"],
    )
