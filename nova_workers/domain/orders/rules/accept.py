"""Accepts validated orders: one execution for equal orders, and its result for each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders import DEFAULT_TTL_HOURS, AiWorkOrderV1, AiWorkResultV1, PolicyDocument
from nova_workers.contracts.orders.keys import KEY_PREFIX
from nova_workers.domain.orders.rules.advance import ORDER_AGENT_SPEC
from nova_workers.domain.orders.rules.content import OrderContent, seal_content
from nova_workers.domain.orders.rules.policies.choosing import presentation_of
from nova_workers.domain.orders.rules.sealing import OrderKeys, OrderSeal
from nova_workers.domain.orders.rules.stages import jobs_of
from nova_workers.domain.orders.rules.views import OrderViews
from nova_workers.domain.orders.sql.acceptance import NewOrder, NewPart, insert_order, insert_parts
from nova_workers.domain.orders.sql.ends import TrailEntry, add_trail
from nova_workers.domain.orders.sql.records import OrderRow, find_order, get_order, keep_longer
from nova_workers.domain.secrets.rules.vault import Sealed
from nova_workers.ledger.database import Connection
from nova_workers.ledger.in_doubt import doubtful, write_once
from nova_workers.ledger.work import Work


@dataclass(frozen=True, slots=True)
class AcceptedOrder:
    """An order that is in the ledger.

    Attributes:
        shared: Whether an equal order made it: its result is this order's too.
        settled: The order, if it has ended or is in review.
    """

    trace_id: str
    shared: bool
    settled: OrderRow | None = None


class Orders:
    """Accepts orders and returns their results."""

    def __init__(self, work: Work, keys: OrderKeys) -> None:
        self._database = work.database
        self._work = work
        self._keys = keys
        self._views = OrderViews(keys)

    async def accept(
        self,
        order: AiWorkOrderV1,
        policy: PolicyDocument,
        *,
        tenant_id: str,
        traceparent: str | None,
        key_hashes: Sequence[str] = (),
    ) -> AcceptedOrder:
        """Store an order and start its execution, unless an equal one is open or its result is kept.

        The key hash must have been verified against the content.

        Args:
            policy: What it is bound by.
            traceparent: Of the request.
            key_hashes: The order's key under each secret of the tenant: the first is the one that the result is kept
                under, and equal orders may have any of them. Without any, its own one.

        Raises:
            Conflict: There is no master key, so nothing could be encrypted.
            Unavailable: The database does not answer. Repeating the order is safe.
        """
        keys = [_plain(key) for key in key_hashes or [order.idempotency.key_hash]]
        ttl_hours = order.idempotency.ttl_hours or DEFAULT_TTL_HOURS
        version = {"policy_version": _key_version(order, policy), "schema_version": schema_version(policy)}
        async with self._database.connection() as connection:
            found = await find_order(connection, tenant_id, keys, **version, ttl_hours=ttl_hours)
            if found is not None:
                return await _shared(connection, found, ttl_hours)
        trace_id = new_id("trc")
        seal, wrapped = self._keys.make(tenant_id, trace_id)
        new = _new_order(
            order,
            policy,
            seal,
            wrapped,
            tenant_id=tenant_id,
            trace_id=trace_id,
            key_hash=keys[0],
            traceparent=traceparent,
        )
        jobs = [NewPart(job.kind, job.role, 1, job.position) for job in jobs_of(policy, "craft")]

        async def write() -> AcceptedOrder:
            while True:
                async with self._work.begin() as tx:
                    connection = tx.connection
                    if await insert_order(connection, new):
                        bells = await insert_parts(
                            connection, tenant_id, trace_id, jobs, ORDER_AGENT_SPEC, traceparent, "interactive"
                        )
                        await add_trail(connection, tenant_id, trace_id, _accepted_entries(order, policy))
                        tx.ring(bells)
                        return AcceptedOrder(trace_id, shared=False)
                    found = await find_order(connection, tenant_id, keys, **version, ttl_hours=ttl_hours)
                    if found is not None and found.id == trace_id:
                        # This same one, whose commit was not confirmed; the reconciler rings for its run.
                        return AcceptedOrder(trace_id, shared=False)
                    if found is not None:
                        return await _shared(connection, found, ttl_hours)
                # Its result expired between the two statements.

        return await write_once(
            write, _found_by_writing, doubt=lambda: doubtful("the order", keys[0], trace_id=trace_id)
        )

    async def result_of(
        self,
        tenant_id: str,
        trace_id: str,
        *,
        mode: PresentationMode | None = None,
        shared: bool = False,
        internal: bool = False,
        drafts: bool = False,
        known: OrderRow | None = None,
    ) -> AiWorkResultV1:
        """Return the result of an order, or its present state.

        Args:
            trace_id: The order.
            mode: How to show the proposals; None as the order asked.
            shared: Whether an equal order asks: `meta.cached` is true.
            internal: Whether the reader may see costs, and what the policy hides.
            drafts: Whether the reader may decide on reviews: only then is there anything to see before the decision.
            known: The order, if it was read already.

        Raises:
            NotFound: No such order in this tenant.
        """
        async with self._database.connection() as connection:
            row = known or await get_order(connection, tenant_id, trace_id)
            return await self._views.result(connection, row, mode=mode, shared=shared, internal=internal, drafts=drafts)


@lru_cache(maxsize=1_000)
def _digest(schema: bytes) -> str:
    return hashlib.sha256(schema).hexdigest()[:16]


def schema_version(policy: PolicyDocument) -> str:
    """Return the version of the schema of a policy's artifacts: it changes with every change of the schema."""
    schema = orjson.dumps(policy.payload_schema(), option=orjson.OPT_SORT_KEYS)
    return f"v1 {policy.produces} {_digest(schema)}"


def _key_version(order: AiWorkOrderV1, policy: PolicyDocument) -> str:
    """Return the version of a policy as keys have it: with a digest of its document, and of what of an order it reads.

    A tenant's document may have the version of a built-in one. The caller's key has no extensions; two orders that
    differ in one that changes what is executed are not equal all the same.
    """
    version = f"{policy.version} {_digest(orjson.dumps(policy.to_wire(), option=orjson.OPT_SORT_KEYS))}"
    read = _extensions_read(order, policy)
    return f"{version} {_digest(orjson.dumps(read, option=orjson.OPT_SORT_KEYS))}" if read else version


def _extensions_read(order: AiWorkOrderV1, policy: PolicyDocument) -> dict[str, Any]:
    extensions = order.extensions
    if extensions is None:
        return {}
    read: dict[str, Any] = {}
    if extensions.intent_type is not None and policy.reads("intent"):
        read["intentType"] = extensions.intent_type
    if extensions.provider_hints is not None and policy.hints_override:
        read |= {"providerHints": hints} if (hints := extensions.provider_hints.to_wire()) else {}
    return read


async def _shared(connection: Connection, found: OrderRow, ttl_hours: float) -> AcceptedOrder:
    if ttl_hours > found.ttl_hours:
        await keep_longer(connection, found.id, ttl_hours)
    return AcceptedOrder(found.id, shared=True, settled=None if found.state == "running" else found)


def _plain(key_hash: str) -> str:
    return key_hash.removeprefix(KEY_PREFIX)


def _new_order(
    order: AiWorkOrderV1,
    policy: PolicyDocument,
    seal: OrderSeal,
    wrapped: Sealed,
    *,
    tenant_id: str,
    trace_id: str,
    key_hash: str,
    traceparent: str | None,
) -> NewOrder:
    limits, caps = order.constraints, policy.caps
    return NewOrder(
        id=trace_id,
        tenant_id=tenant_id,
        key_hash=key_hash,
        key_version=_key_version(order, policy),
        scope=order.scope,
        policy_id=policy.id,
        policy_version=policy.version,
        schema_version=schema_version(policy),
        trace=order.trace.to_wire(),
        presentation_mode=presentation_of(order, policy),
        customer_trail=order.audit.customer_trail_on,
        internal_trail=order.audit.internal_trail_on,
        traceparent=traceparent,
        fingerprint=seal.fingerprint(orjson.dumps(order.inputs, option=orjson.OPT_SORT_KEYS)),
        max_rounds=min(limits.max_rounds or caps.max_rounds, caps.max_rounds),
        max_tokens=min(limits.max_tokens_total or caps.max_tokens_total, caps.max_tokens_total),
        max_cost_usd=min(limits.cost_cap_usd or caps.cost_cap_usd, caps.cost_cap_usd),
        least_output_tokens=caps.least_output_tokens,
        ttl_hours=order.idempotency.ttl_hours or DEFAULT_TTL_HOURS,
        timeout_ms=min(limits.timeout_ms or caps.timeout_ms, caps.timeout_ms),
        data_key=wrapped.ciphertext,
        data_key_id=wrapped.key_id,
        sealed=seal_content(seal, OrderContent(order, policy)),
    )


def _accepted_entries(order: AiWorkOrderV1, policy: PolicyDocument) -> list[TrailEntry]:
    recorded = {"customer": order.audit.customer_trail_on, "internal": order.audit.internal_trail_on}
    entries = [
        TrailEntry("customer", "accepted", {"scope": order.scope, "jobId": order.trace.job_id}),
        TrailEntry(
            "internal",
            "accepted",
            {"policyId": policy.id, "policyVersion": policy.version, "keyHash": order.idempotency.key_hash},
        ),
    ]
    return [entry for entry in entries if recorded[entry.audience]]


async def _found_by_writing() -> None:
    """Find nothing: an order is found by its key, which it has in common with equal ones."""
