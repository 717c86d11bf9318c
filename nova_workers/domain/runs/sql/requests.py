"""What a model call was asked with: parts of the statements that commit its step, and what they wrote.

Sections of prompts and lists of tools are stored once a tenant, under the hash of their content, and a *form* names
those of a request with its settings. A worker does not send a part again that it wrote recently; then a statement has
only the form's id. So a part may not be deleted while a worker remembers it: see `delete_unused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import RequestPartKind
from nova_workers.contracts.content import JsonObject, Role
from nova_workers.ledger.database import Connection

REMEMBERED_S: Final = 1_800.0
"""How long a worker relies on a part that it wrote."""
_UNUSED: Final = timedelta(hours=2)
"""The time without a write after which a part may be deleted: far longer than a worker remembers it, and its last
statement may be repeated."""

# The parts refer to `mine`, the fenced run. A later attempt may ask for the same step again. Parts come in the order of
# their ids, so that two statements that write the same ones wait for each other and do not deadlock.
REQUESTS: Final = """
parts_in AS (
    INSERT INTO request_parts (tenant_id, id, kind, content, parts)
    SELECT mine.tenant_id, x.id, x.kind, x.content, x.parts
      FROM mine, jsonb_to_recordset(:request_parts) AS x(id text, kind text, content jsonb, parts text[])
    ON CONFLICT (tenant_id, id) DO UPDATE SET used_at = now()
), model_calls_in AS (
    INSERT INTO model_calls (turn_id, step, tenant_id, form_id, parent_turn_id, requested_at, first_token_ms)
    SELECT mine.turn_id, x.step, mine.tenant_id, x.form_id, x.parent_turn_id, x.requested_at, x.first_token_ms
      FROM mine, jsonb_to_recordset(:model_calls) AS x(step int, form_id text, parent_turn_id text,
                                                       requested_at timestamptz, first_token_ms int)
    ON CONFLICT (turn_id, step) DO UPDATE
       SET form_id = EXCLUDED.form_id, parent_turn_id = EXCLUDED.parent_turn_id, requested_at = EXCLUDED.requested_at,
           first_token_ms = EXCLUDED.first_token_ms
)
"""

# A page of parts, in the order of their keys, without those that nothing names any more. Who names one that no worker
# remembers writes it in the same statement, and so waits for this one, or makes this one see that it is used again.
_DELETE_UNUSED = """
WITH page AS (
    SELECT tenant_id, id FROM request_parts
     WHERE (tenant_id, id) > (:after_tenant, :after_id)
     ORDER BY tenant_id, id
     LIMIT :limit
), deleted AS (
    DELETE FROM request_parts p USING page
     WHERE p.tenant_id = page.tenant_id AND p.id = page.id AND p.used_at < now() - :unused::interval
       AND CASE WHEN p.kind = 'form'
                THEN NOT EXISTS (SELECT FROM model_calls c WHERE c.tenant_id = p.tenant_id AND c.form_id = p.id)
                ELSE NOT EXISTS (SELECT FROM request_parts f
                                  WHERE f.tenant_id = p.tenant_id AND f.parts @> ARRAY[p.id] AND f.parts IS NOT NULL)
           END
    RETURNING 1
)
SELECT tenant_id, id, (SELECT count(*)::int FROM deleted) AS deleted, (SELECT count(*)::int FROM page) AS read
  FROM page ORDER BY tenant_id DESC, id DESC LIMIT 1
"""

_FIND = """
SELECT t.id AS turn_id, t.engine, t.parent_turn_id, t.refused_blocks, t.model,
       c.form_id, c.parent_turn_id AS asked_after, c.turn_id IS NOT NULL AS is_recorded, c.requested_at,
       c.first_token_ms, GREATEST(t.steps, (SELECT max(m.step) + 1 FROM messages m WHERE m.turn_id = t.id), 0) AS steps,
       f.content AS form
  FROM runs r LEFT JOIN turns t ON t.id = r.turn_id
  LEFT JOIN model_calls c ON c.turn_id = t.id AND c.step = :step AND c.tenant_id = r.tenant_id
  LEFT JOIN request_parts f ON f.tenant_id = r.tenant_id AND f.id = c.form_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

_PARTS = "SELECT id, content FROM request_parts WHERE tenant_id = :tenant_id AND id = ANY(:ids::text[])"

# The query of a turn and its steps up to one, without those that the summary of a compaction replaces.
_MESSAGES = """
SELECT m.kind, m.step, m.role, m.content, m.context
  FROM messages m
 WHERE m.turn_id = :turn_id AND m.tenant_id = :tenant_id
   AND (m.step IS NULL OR m.step <= :step AND m.step > COALESCE((
        SELECT c.through_step FROM compactions c WHERE c.turn_id = :after_turn_id AND c.tenant_id = :tenant_id), -1))
 ORDER BY m.seq
"""


@dataclass(frozen=True, slots=True)
class RequestPart:
    """A part of requests, under the hash of its content.

    Attributes:
        parts: Of a form: the ids of its parts.
    """

    id: str
    kind: RequestPartKind
    content: Any
    parts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The model call of a step, and the parts of its request that the statement has to write.

    Attributes:
        form_id: None where the engine does not make its requests.
        parent_turn_id: The turn whose conversation came before.
    """

    step: int
    form_id: str | None
    parent_turn_id: str | None
    requested_at: datetime | None
    first_token_ms: int | None
    parts: tuple[RequestPart, ...] = ()


class Swept(NamedTuple):
    """What one batch of `delete_unused` did: the key of its last part, None at the end."""

    after: tuple[str, str] | None
    deleted: int


def request_values(call: RecordedCall | None) -> dict[str, list[JsonObject]]:
    """Return the values of `REQUESTS`; None writes nothing."""
    if call is None:
        return {"request_parts": [], "model_calls": []}
    row: JsonObject = {
        "step": call.step,
        "form_id": call.form_id,
        "parent_turn_id": call.parent_turn_id,
        "requested_at": None if call.requested_at is None else call.requested_at.isoformat(),
        "first_token_ms": call.first_token_ms,
    }
    parts = sorted(call.parts, key=lambda part: part.id)
    return {
        "request_parts": [
            {"id": part.id, "kind": part.kind, "content": part.content, "parts": part.parts} for part in parts
        ],
        "model_calls": [row],
    }


async def delete_unused(connection: Connection, after: tuple[str, str] | None, *, limit: int) -> Swept:
    """Delete the parts of a page that no model call of the ledger names, and that no worker wrote for hours.

    Args:
        after: The key after which the page begins; None begins with the first part.
        limit: Most parts to look at.
    """
    tenant_id, part_id = after or ("", "")
    row = await connection.fetchrow(
        _DELETE_UNUSED, after_tenant=tenant_id, after_id=part_id, limit=limit, unused=_UNUSED
    )
    if row is None:
        return Swept(None, 0)
    return Swept((row["tenant_id"], row["id"]) if row["read"] == limit else None, row["deleted"])


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A model call as the ledger has it.

    Attributes:
        is_recorded: Whether there is a row of it: not of calls that an earlier release made.
        form: The sections as pairs of tag and part, the part of the tools, and the settings; None without.
        parent_turn_id: The turn whose conversation came before.
        refused: Notes for the blocks that the provider refused in the turn, by fingerprint.
    """

    turn_id: str
    engine: str | None
    model: str | None
    is_recorded: bool
    has_form: bool
    form: JsonObject | None
    parent_turn_id: str | None
    refused: dict[str, str]
    requested_at: datetime | None
    first_token_ms: int | None


class TurnMessage(NamedTuple):
    """A message of the turn whose call it is. The query has no step, and maybe the context of its event."""

    kind: str
    step: int | None
    role: Role
    content: list[JsonObject]
    context: JsonObject | None


async def find_call(connection: Connection, tenant_id: str, run_id: str, step: int) -> FoundCall | None:
    """Return the model call of a step; None if the run has no such step.

    Raises:
        NotFound: There is no such run.
    """
    row = await connection.fetchrow(_FIND, tenant_id=tenant_id, run_id=run_id, step=step)
    row = existing(row, "run", run_id)
    if row["turn_id"] is None or not (row["is_recorded"] or step < row["steps"]):
        return None
    return FoundCall(
        turn_id=row["turn_id"],
        engine=row["engine"],
        model=row["model"],
        is_recorded=row["is_recorded"],
        has_form=row["form_id"] is not None,
        form=row["form"],
        parent_turn_id=row["asked_after"] if row["is_recorded"] else row["parent_turn_id"],
        refused=row["refused_blocks"] or {},
        requested_at=row["requested_at"],
        first_token_ms=row["first_token_ms"],
    )


async def load_parts(connection: Connection, tenant_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the contents of parts by id."""
    rows = await connection.fetch(_PARTS, tenant_id=tenant_id, ids=list(ids))
    return {row["id"]: row["content"] for row in rows}


async def load_turn_messages(connection: Connection, tenant_id: str, call: FoundCall, step: int) -> list[TurnMessage]:
    """Return the messages of the call's turn up to the end of a step, in their order."""
    rows = await connection.fetch(
        _MESSAGES, tenant_id=tenant_id, turn_id=call.turn_id, step=step, after_turn_id=call.parent_turn_id
    )
    return [TurnMessage(row["kind"], row["step"], row["role"], row["content"], row["context"]) for row in rows]
