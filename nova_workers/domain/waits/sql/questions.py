"""Questions of waiting runs in the inbox: one item per wait, from the suspension of the run to the end of the wait.

The statement that suspends a run inserts the item, with an id derived from the wait's. It is routed to channels and
webhooks like every inbox item. The transaction that ends the wait closes the item and its unsent copies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.deliveries import INBOX
from nova_workers.contracts.waits import AskApproval, AskUser, WaitRequest
from nova_workers.ledger.database import Connection

_PARAMS_CHARS: Final = 2_000

_CLOSE_ITEMS = """
UPDATE deliveries SET status = 'closed'
 WHERE id = ANY(SELECT 'dlv_' || substr(wait, 6) FROM unnest(:wait_ids::text[]) AS wait) AND status = 'pending'
RETURNING run_id
"""

# A separate statement, so that it sees copies of a router that held the item until now.
_CLOSE_COPIES = f"""
UPDATE deliveries SET status = 'closed'
 WHERE run_id = ANY(:run_ids::text[]) AND kind IN ('question', 'approval')
   AND target <> '{INBOX}' AND status = 'pending' AND payload ->> 'wait_id' = ANY(:wait_ids::text[])
"""


def inbox_item(wait_id: str, request: WaitRequest) -> tuple[str, JsonObject] | None:
    """Return kind and payload of the inbox item for a wait; None if the wait is not for a person."""
    if isinstance(request, AskUser):
        return "question", {
            "wait_id": wait_id,
            "text": request.question,
            "options": list(request.options),
            "only_options": request.only_options,
        }
    if isinstance(request, AskApproval):
        params = json.dumps(request.params, ensure_ascii=False)
        return "approval", {
            "wait_id": wait_id,
            "text": request.reason or f"May {request.tool_name} be called?",
            "tool_name": request.tool_name,
            "params": params[:_PARAMS_CHARS],
            "params_truncated": len(params) > _PARAMS_CHARS,
        }
    return None


async def close_questions(connection: Connection, wait_ids: Sequence[str]) -> None:
    """Close the inbox items of ended waits and their unsent copies. Call it in the transaction that ends the waits."""
    if wait_ids:
        run_ids = {row["run_id"] for row in await connection.fetch(_CLOSE_ITEMS, wait_ids=list(wait_ids))}
        await connection.execute(_CLOSE_COPIES, wait_ids=list(wait_ids), run_ids=list(run_ids))
