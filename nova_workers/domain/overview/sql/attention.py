"""Reads what needs a person, and how much is under way, in one statement, and of each no more than is counted.

Triggers, tasks and orders have a partial index each, with nothing else in it. Questions and approvals share one, with
all of both in it, and are read by kind, so that neither hides the other. A tenant's webhooks are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache
from typing import Final, Literal

from nova_workers.base.vocabulary import ANSWERABLE
from nova_workers.contracts.http.overview.attention import MAX_COUNTED, AttentionView
from nova_workers.contracts.http.scopes import Scope
from nova_workers.ledger.database import Connection

_Group = Literal["questions", "approvals", "orchestrations", "orders", "triggers", "tasks", "webhooks"]

_TITLE_CHARS: Final = 300

_ASKS = "\nUNION ALL\n".join(
    f"""
(SELECT w.id, w.kind, w.request, w.run_id, w.created_at AS at, w.due_at, r.agent_id, r.thread_id, t.orchestration_id
   FROM run_waits w JOIN runs r ON r.id = w.run_id JOIN threads t ON t.id = r.thread_id
  WHERE w.tenant_id = :tenant_id AND w.status = 'open' AND w.kind = '{kind}'
  ORDER BY w.id DESC
  LIMIT {MAX_COUNTED})"""
    for kind in ANSWERABLE
)

_OF_RUNS: Final[Mapping[_Group, str]] = {
    "questions": """
SELECT id, request->>'question' AS title, NULL AS reason, agent_id, run_id, thread_id, orchestration_id, at, due_at
  FROM asks WHERE kind = 'user'
""",
    "approvals": """
SELECT id, request->>'tool_name' AS title, request->>'reason' AS reason, agent_id, run_id, thread_id, orchestration_id,
       at, due_at
  FROM asks WHERE kind = 'approval'
""",
    "orchestrations": """
SELECT o.id, o.task AS title, NULL AS reason, o.agent_id, NULL AS run_id, o.thread_id, o.id AS orchestration_id, a.at,
       o.deadline_at AS due_at
  FROM (SELECT orchestration_id, max(at) AS at FROM asks GROUP BY orchestration_id) a
  JOIN orchestrations o ON o.id = a.orchestration_id
 WHERE o.tenant_id = :tenant_id
""",
    "orders": f"""
SELECT o.id, o.policy_id AS title, NULL AS reason, NULL AS agent_id, NULL AS run_id, NULL AS thread_id,
       NULL AS orchestration_id, o.created_at AS at, o.review_due_at AS due_at
  FROM work_orders o
 WHERE o.tenant_id = :tenant_id AND o.state = 'review'
 ORDER BY o.id DESC
 LIMIT {MAX_COUNTED}
""",
}
_OF_WORKSPACE: Final[Mapping[_Group, str]] = {
    "triggers": f"""
SELECT g.id, COALESCE(g.title, g.prompt) AS title, g.paused_reason AS reason, g.agent_id, NULL AS run_id, g.thread_id,
       NULL AS orchestration_id, g.updated_at AS at, NULL::timestamptz AS due_at
  FROM triggers g
 WHERE g.tenant_id = :tenant_id AND g.paused_reason IS NOT NULL AND g.deleted_at IS NULL
 ORDER BY g.id DESC
 LIMIT {MAX_COUNTED}
""",
    "tasks": f"""
SELECT k.id::text AS id, k.title, k.parked_reason AS reason, k.owner_agent_id AS agent_id, NULL AS run_id, k.thread_id,
       NULL AS orchestration_id, k.updated_at AS at, NULL::timestamptz AS due_at
  FROM tasks k
 WHERE k.tenant_id = :tenant_id AND k.status = 'active' AND k.parked_reason IS NOT NULL
 ORDER BY k.id DESC
 LIMIT {MAX_COUNTED}
""",
}
_OF_WEBHOOKS: Final[Mapping[_Group, str]] = {
    "webhooks": f"""
SELECT h.id, h.url AS title, h.agent_id,
       COALESCE(h.disabled_reason, CASE WHEN h.failures = 1 THEN 'The last attempt failed.'
                                     ELSE h.failures || ' attempts failed one after the other.' END) AS reason,
       NULL AS run_id, NULL AS thread_id, NULL AS orchestration_id,
       COALESCE(h.failing_since, h.updated_at) AS at, NULL::timestamptz AS due_at
  FROM webhooks h
 WHERE h.tenant_id = :tenant_id AND (h.failures > 0 OR h.disabled_reason IS NOT NULL)
 LIMIT {MAX_COUNTED}
""",
}
_RUNNING: Final = f"""
UNION ALL
SELECT 'running', count(*)::int, '{{}}'
  FROM (SELECT FROM runs r WHERE r.tenant_id = :tenant_id AND r.status = 'running' LIMIT {MAX_COUNTED}) x
"""
_GROUPS: Final[Mapping[Scope, Mapping[_Group, str]]] = {
    "runs:read": _OF_RUNS,
    "workspace:read": _OF_WORKSPACE,
    # The address of a webhook may be a secret itself, so a scope that only reads does not show it.
    "workspace": _OF_WEBHOOKS,
}


async def find_attention(connection: Connection, tenant_id: str, scopes: Set[str], *, limit: int) -> AttentionView:
    """Return the items that need a person: of each group the number, and up to `limit` of the newest.

    Args:
        scopes: Those of the key; a group of another scope is None.
    """
    statement = _statement(frozenset(scopes & _GROUPS.keys()))
    rows = await connection.fetch(statement, tenant_id=tenant_id, limit=limit) if statement else []
    found = {row["name"]: {"count": row["count"], "items": row["items"]} for row in rows}
    running = found.pop("running", None)
    return AttentionView.model_validate({**found, "running": running and running["count"]})


@cache
def _statement(scopes: frozenset[Scope]) -> str:
    """Return the statement for some scopes; empty without any."""
    groups = {name: sql for scope in sorted(scopes) for name, sql in _GROUPS[scope].items()}
    parts = "\nUNION ALL\n".join(
        f"""
SELECT '{name}' AS name, count(*)::int AS count,
       COALESCE((array_agg(jsonb_build_object(
           'id', x.id, 'title', left(x.title, {_TITLE_CHARS}), 'reason', left(x.reason, {_TITLE_CHARS}),
           'agent_id', x.agent_id, 'run_id', x.run_id, 'thread_id', x.thread_id,
           'orchestration_id', x.orchestration_id, 'at', x.at, 'due_at', x.due_at)
           ORDER BY x.at DESC, x.id DESC))[1:(:limit)], '{{}}') AS items
  FROM ({sql}) x"""
        for name, sql in groups.items()
    )
    if not groups:
        return ""
    return f"WITH asks AS MATERIALIZED ({_ASKS})\n{parts}{_RUNNING}" if "runs:read" in scopes else parts
