"""The payload of `run_completed` deliveries, and which runs need one, or notifications of their clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.contracts.content import JsonObject
from nova_workers.ledger.database import Connection

# Whether a webhook subscribes to the end of the run `mine`. For a tenant without webhooks this is one index lookup.
# Webhooks name a renamed agent by its new id at once, runs when they have moved.
_HAS_SUBSCRIBED_WEBHOOK = """\
EXISTS (SELECT FROM webhooks w
         WHERE w.tenant_id = mine.tenant_id AND w.enabled AND (w.kinds = '{}' OR 'run_completed' = ANY (w.kinds))
           AND (w.agent_id IS NULL
                OR w.agent_id = COALESCE((SELECT a.renamed_to FROM agents a
                                           WHERE a.tenant_id = mine.tenant_id AND a.id = mine.agent_id),
                                         mine.agent_id)))"""

HAS_LISTENER = f"(mine.has_push_configs OR {_HAS_SUBSCRIBED_WEBHOOK})"
"""Whether the end of the run `mine` is delivered. The column is read in the row's newest version: an address that was
added while the statement waited for the row counts too."""

_TEXT_CHARS = 16_000
"""Of an answer, so that a body stays far below the limits of receivers; the API has the whole."""

_ENDS = """
SELECT r.id, r.tenant_id, COALESCE(a.renamed_to, r.agent_id) AS agent_id, r.thread_id, r.status, r.stop_reason,
       r.source, left(r.result_text, :text_chars) AS text,
       coalesce(length(r.result_text) > :text_chars, false) AS text_truncated, r.error_kind, r.error_message,
       r.created_at, r.finished_at
  FROM runs r LEFT JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
 WHERE r.id = ANY (:run_ids) AND r.status IN ('succeeded', 'failed', 'canceled')
"""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run, as it is delivered. `payload` is a JSON object."""

    run_id: str
    tenant_id: str
    agent_id: str
    thread_id: str
    payload: JsonObject


async def read_run_ends(connection: Connection, run_ids: Sequence[str]) -> list[RunEnd]:
    """Return how these runs ended. Open runs are left out."""
    ends: list[RunEnd] = []
    for row in await connection.fetch(_ENDS, run_ids=list(run_ids), text_chars=_TEXT_CHARS):
        failed = row["error_kind"] is not None
        payload = {
            "status": row["status"],
            "stop_reason": row["stop_reason"],
            "source": row["source"],
            "text": row["text"] or "",
            "text_truncated": row["text_truncated"],
            "error": {"kind": row["error_kind"], "message": row["error_message"]} if failed else None,
            "created_at": row["created_at"].isoformat(),
            "finished_at": row["finished_at"].isoformat(),
        }
        ends.append(RunEnd(row["id"], row["tenant_id"], row["agent_id"], row["thread_id"], payload))
    return ends
