"""Accepts orders: one order for a key, its parts and their runs, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import RoleKind, RunQueue
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import text_block
from nova_workers.contracts.default_agents import ORDER_AGENT
from nova_workers.contracts.runs import Doorbell, Submission
from nova_workers.domain.runs.sql.submit import insert_run_on_new_thread
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import to_store

# One statement takes the key and inserts the order, so no order exists twice for a key. A concurrent transaction with
# the same key waits here, and returns no row once this one has committed. A key is taken over if it has expired, or if
# its result is older than this order accepts.
_INSERT = """
WITH taken AS (
    INSERT INTO work_order_keys AS k (tenant_id, key_hash, policy_version, schema_version, order_id, expires_at)
    VALUES (:tenant_id, :key_hash, :key_version, :schema_version, :order_id, 'infinity')
    ON CONFLICT (tenant_id, key_hash, policy_version, schema_version) DO UPDATE
       SET order_id = EXCLUDED.order_id, expires_at = EXCLUDED.expires_at
     WHERE k.expires_at <= now()
        OR EXISTS (SELECT FROM work_orders o
                    WHERE o.id = k.order_id AND o.ended_at <= now() - :ttl_hours::float8 * interval '1 hour')
    RETURNING order_id
)
INSERT INTO work_orders (id, tenant_id, scope, policy_id, policy_version, schema_version, trace, presentation_mode,
                         customer_trail, internal_trail, traceparent, fingerprint, max_rounds, max_tokens,
                         max_cost_usd, least_output_tokens, ttl_hours, deadline_at, data_key, data_key_id, sealed)
SELECT taken.order_id, :tenant_id, :scope, :policy_id, :policy_version, :schema_version, :trace, :presentation_mode,
       :customer_trail, :internal_trail, :traceparent, :fingerprint, :max_rounds, :max_tokens,
       :max_cost_usd::float8, :least_output_tokens, :ttl_hours, now() + :timeout_ms * interval '1 millisecond',
       :data_key, :data_key_id, :sealed
  FROM taken
RETURNING id
"""

_INSERT_PART = """
INSERT INTO work_order_parts (id, tenant_id, order_id, run_id, kind, role, round, position, reserved_usd, used_usd)
VALUES (:part_id, :tenant_id, :order_id, :run_id, :kind, :role, :round, :position, 0, 0)
"""

# The reserved agent is made with its tenant's first order, and again if it was deleted. Its runs are executed by the
# engine of work orders whatever else its configuration says.
_ENSURE_AGENT = """
WITH made AS (
    INSERT INTO agents AS a (tenant_id, id, version, spec) VALUES (:tenant_id, :agent_id, 1, :spec)
    ON CONFLICT (tenant_id, id) DO UPDATE
       SET version = a.version + 1, spec = EXCLUDED.spec, updated_at = now(), deleted_at = NULL, renamed_to = NULL
     WHERE a.deleted_at IS NOT NULL
    RETURNING tenant_id, id, version, spec
)
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT tenant_id, id, version, spec, 'seed' FROM made
"""


@dataclass(frozen=True, slots=True)
class NewOrder:
    """A validated order. Its content is encrypted already."""

    id: str
    tenant_id: str
    key_hash: str
    key_version: str
    """The policy's version and a digest of its document."""
    scope: str
    policy_id: str
    policy_version: str
    schema_version: str
    trace: dict[str, Any]
    presentation_mode: str | None
    customer_trail: bool
    internal_trail: bool
    traceparent: str | None
    fingerprint: str
    max_rounds: int
    max_tokens: int
    max_cost_usd: float
    least_output_tokens: int
    ttl_hours: float
    timeout_ms: int
    data_key: bytes
    data_key_id: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class NewPart:
    """A model job to add to an order."""

    kind: RoleKind
    role: str
    round: int
    position: int


async def insert_order(connection: Connection, order: NewOrder) -> bool:
    """Insert an order. False if its key has a live order already."""
    values = {name: getattr(order, name) for name in order.__slots__ if name != "id"}
    return await connection.fetchval(_INSERT, order_id=order.id, **values) is not None


async def insert_parts(  # noqa: PLR0917 - the parts of one transition
    connection: Connection,
    tenant_id: str,
    order_id: str,
    parts: Sequence[NewPart],
    spec: AgentSpec,
    traceparent: str | None,
    queue: RunQueue,
) -> list[Doorbell]:
    """Insert parts with their runs, each on a thread of its own, and return the doorbells to ring.

    Args:
        connection: A transaction that holds the order's lock, or inserted it.
        spec: The configuration of the reserved agent, if the tenant does not have it yet.
        traceparent: Of the request.
        queue: Of the runs.
    """
    bells: list[Doorbell] = []
    for part in parts:
        part_id, run_id = new_id("wop"), new_id("run")
        submission = Submission(
            tenant_id,
            # A reference only: the content of orders is nowhere in the clear.
            (text_block(f"Work order {order_id}, part {part_id}"),),
            agent_id=ORDER_AGENT,
            queue=queue,
            source="work_order",
            traceparent=traceparent,
        )
        accepted = await insert_run_on_new_thread(connection, submission, run_id)
        if accepted is None:
            stored = to_store(AgentSpec, spec)
            await connection.execute(_ENSURE_AGENT, tenant_id=tenant_id, agent_id=ORDER_AGENT, spec=stored)
            accepted = await insert_run_on_new_thread(connection, submission, run_id)
        assert accepted is not None  # noqa: S101 - the statement before made the agent
        await connection.execute(
            _INSERT_PART,
            part_id=part_id,
            tenant_id=tenant_id,
            order_id=order_id,
            run_id=run_id,
            kind=part.kind,
            role=part.role,
            round=part.round,
            position=part.position,
        )
        bells.append(accepted.doorbell)
    return bells
