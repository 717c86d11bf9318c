"""Moves an order on when the parts of its stage have ended: to the next stage, to review, or to its end.

The transaction that ends the last part of a stage also decides what follows and inserts it, so no order waits for a
process that may be gone. Every function here is a step of a transaction that holds the order's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import WorkStopReason
from nova_workers.contracts.agents import AgentSpec, ThreadRetention
from nova_workers.contracts.default_agents import ORDER_AGENT
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.contracts.orders import OrderProblem, artifact_of
from nova_workers.domain.delivery.sql.announcements import announce
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.orders.rules.checking.leaks import LeakCheck
from nova_workers.domain.orders.rules.content import OrderContent, PartOutput, open_content, open_outputs
from nova_workers.domain.orders.rules.outcome import Outcome, outcome_of, result_without_outcome
from nova_workers.domain.orders.rules.presentation import Proposal, artifacts_of
from nova_workers.domain.orders.rules.presentation import rank as rank_proposals
from nova_workers.domain.orders.rules.sealing import OrderKeys, OrderSeal
from nova_workers.domain.orders.rules.stages import End, EndedPart, Next, Ranked, decide, rank
from nova_workers.domain.orders.rules.trail import record
from nova_workers.domain.orders.sql.acceptance import NewPart, insert_parts
from nova_workers.domain.orders.sql.ends import OrderEnd, TrailEntry, begin_review, end_order, move_order
from nova_workers.domain.orders.sql.records import OrderRow, PartRow, list_parts
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork

ENGINE: Final = "work_order"
"""The name of the engine that executes parts."""

ORDER_AGENT_SPEC: Final = AgentSpec(
    name="Work orders",
    description="Executes the parts of work orders. Reserved: its messages are references to encrypted orders.",
    engine=ENGINE,
    retention=ThreadRetention(after_days=30, keep="none"),
)

_DRAFT: Final = "draft"
_WITHOUT_CONTENT: Final = "without_content"
_KEPT: Final = ("ok", "cost_cap_exceeded", "round_cap_exceeded")
"""Stop reasons with which equal orders get the same result. After others, an equal order is executed anew."""

_FAULTS: Final = ("rate_limited", "provider_failed")
"""Stop reasons of parts that a model provider failed."""


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """A locked order that has not ended, with its content."""

    row: OrderRow
    seal: OrderSeal
    content: OrderContent
    parts: Sequence[PartRow]
    outputs: Mapping[str, PartOutput]
    keys: OrderKeys

    async def check_of(self, connection: Connection, proposals: Sequence[Proposal]) -> LeakCheck:
        """Return the check for what the order's customer may not see, once it has read these proposals."""
        row, content = self.row, self.content
        check = LeakCheck(
            content.policy,
            canary=self.seal.canary,
            secrets=await self.keys.known_secrets.of_tenant(connection, row.tenant_id),
            names=[name for part in self.parts for name in (part.model, part.provider) if name is not None],
            known_to_customer=orjson.dumps(content.order.inputs).decode(),
        )
        await check.read(artifacts_of(proposals, content.policy))
        return check


async def open_order(connection: Connection, row: OrderRow, keys: OrderKeys) -> OpenOrder:
    """Decrypt an order and the answers of its parts.

    Raises:
        Conflict: The order has ended, or this process lacks the master key.
    """
    seal = keys.open(row.tenant_id, row.id, row.data_key_id, row.data_key)
    parts = await list_parts(connection, row.id)
    outputs = {output.part_id: output for output in open_outputs(seal, parts)}
    return OpenOrder(row, seal, _content(row, seal), parts, outputs, keys)


def _content(row: OrderRow, seal: OrderSeal) -> OrderContent:
    assert row.sealed is not None  # noqa: S101 - it is destroyed only together with the key
    return open_content(seal, row.sealed)


async def advance(tx: UnitOfWork, row: OrderRow, keys: OrderKeys) -> None:
    """Decide what follows if all parts of the present stage have ended. Otherwise nothing follows."""
    if row.state != "running":
        return
    order = await open_order(tx.connection, row, keys)
    present = [part for part in order.parts if part.round == row.round and part.kind == row.stage]
    if not present or any(part.stop_reason is None for part in present):
        return
    ended = [_ended(part, order.outputs) for part in order.parts]
    decision = decide(order.content.policy, ended, stage=row.stage, round=row.round, max_rounds=row.max_rounds)
    if isinstance(decision, Next) and row.overdue:
        decision = End("round_cap_exceeded", rank(ended))
    if isinstance(decision, Next):
        await _open_stage(tx, row, decision)
        return
    # Of an order whose time was over because of a provider, an equal one may make more.
    cut_short = row.overdue and any(part.stop_reason in _FAULTS for part in present)
    await _settle(tx, order, decision, cut_short=cut_short)


async def finish(
    tx: UnitOfWork,
    order: OpenOrder,
    proposals: Sequence[Proposal],
    reason: WorkStopReason,
    *,
    cached: bool,
    needs_human: bool | None = None,
    reviewed: str | None = None,
    reviewed_by: str | None = None,
    check: LeakCheck | None = None,
    message: str | None = None,
) -> None:
    """End an order: result, trails, deliveries, and the end of its key. The order is in the state of `order.row`."""
    row = order.row
    check = check or await order.check_of(tx.connection, proposals)
    outcome = outcome_of(
        row.id, order.content, order.parts, proposals, reason, check, needs_human=needs_human, message=message
    )
    end = OrderEnd(outcome.stop_reason, outcome.needs_human, outcome.stored(), cached, reviewed, reviewed_by)
    if not await end_order(tx.connection, row.id, end, expected=row.state):
        return
    result = shown_result(row, order.content, outcome)
    await record(tx.connection, row, _end_entries(outcome, result, reviewed))
    await _deliver(tx, row, "work_order_completed", {"result": result})
    tx.notify_order(row.id)


async def finish_without_content(
    tx: UnitOfWork,
    row: OrderRow,
    *,
    reason: WorkStopReason = "provider_failed",
    needs_human: bool = True,
    reviewed: str | None = None,
    reviewed_by: str | None = None,
    message: str | None = None,
) -> None:
    """End an order whose content cannot be decrypted, or whose result cannot be made. It has no figures."""
    result = result_without_outcome(row.id, reason, needs_human=needs_human, message=message).to_wire()
    # Of no mode of presentation, since it shows nothing.
    outcome = {"results": {_WITHOUT_CONTENT: result}, "internal": {}}
    end = OrderEnd(reason, needs_human, outcome, False, reviewed, reviewed_by)
    if not await end_order(tx.connection, row.id, end, expected=row.state):
        return
    seen = {"status": result["status"], "stopReason": result["stopReason"], "needsHuman": needs_human}
    seen |= {} if reviewed is None else {"reviewed": reviewed}
    entries = [
        TrailEntry("customer", "ended", seen),
        TrailEntry("internal", "ended", {**seen, "internalStopReason": reason}),
    ]
    await record(tx.connection, row, entries)
    await _deliver(tx, row, "work_order_completed", {"result": result})
    tx.notify_order(row.id)


def shown_result(row: OrderRow, content: OrderContent, outcome: Outcome) -> dict[str, Any]:
    """Return the result in the order's own mode of presentation."""
    return outcome.results.get(row.presentation_mode or "") or outcome.results[content.policy.presentation.default]


def open_draft(order: OpenOrder) -> list[Proposal]:
    """Decrypt the proposals that a person reviews."""
    sealed = order.row.sealed_draft
    if sealed is None:
        return []
    return [Proposal(**each) for each in orjson.loads(order.seal.open(_DRAFT, sealed))]


async def _open_stage(tx: UnitOfWork, row: OrderRow, following: Next) -> None:
    connection = tx.connection
    if not await move_order(connection, row.id, stage=following.stage, round=following.round):
        return
    jobs = [NewPart(job.kind, job.role, following.round, job.position) for job in following.jobs]
    tx.ring(
        await insert_parts(connection, row.tenant_id, row.id, jobs, ORDER_AGENT_SPEC, row.traceparent, "interactive")
    )
    stage = {"stage": following.stage, "round": following.round, "parts": len(jobs)}
    await record(connection, row, [TrailEntry("internal", "stage_started", stage)])


async def _settle(tx: UnitOfWork, order: OpenOrder, end: End, *, cut_short: bool) -> None:
    """End the order, or give it to a person if its policy requires that."""
    row, policy = order.row, order.content.policy
    proposals = [_proposal(each, order.outputs) for each in end.ranking]
    check = await order.check_of(tx.connection, proposals)
    draft = outcome_of(row.id, order.content, order.parts, proposals, end.stop_reason, check, in_review=True)
    # The result shows the best that a customer may see, whether the rounds ended by themselves or at a cap.
    ranked = rank_proposals(proposals)
    best = next((each for each in ranked if not check.rules_of(artifact_of(policy.produces, each.payload))), None)
    unsure = best is not None and best.confidence < policy.escalation.below_confidence
    if draft.stop_reason in policy.escalation.stop_reasons or (draft.stop_reason in _KEPT and unsure):
        reason: WorkStopReason = "needs_human" if draft.stop_reason == "ok" else draft.stop_reason
        await _ask_person(tx, order, proposals, reason, draft.left_out)
        return
    cached = draft.stop_reason in _KEPT and not cut_short
    await finish(tx, order, proposals, draft.stop_reason, cached=cached, check=check)


async def _ask_person(
    tx: UnitOfWork,
    order: OpenOrder,
    proposals: Sequence[Proposal],
    reason: WorkStopReason,
    left_out: Sequence[OrderProblem],
) -> None:
    row, hours = order.row, order.content.policy.escalation.review_hours
    stored = [
        {
            "payload": dict(each.payload),
            "confidence": each.confidence,
            "approvals": each.approvals,
            "final": each.final,
        }
        for each in proposals
    ]
    sealed = order.seal.seal(_DRAFT, orjson.dumps(stored))
    if not await begin_review(tx.connection, row.id, sealed_draft=sealed, stop_reason=reason, review_hours=hours):
        return
    await record(
        tx.connection,
        row,
        [
            TrailEntry("customer", "review_requested", {"stopReason": "needs_human"}),
            TrailEntry(
                "internal",
                "review_requested",
                {
                    "stopReason": reason,
                    "proposals": len(proposals),
                    "leftOut": [problem.to_wire() for problem in left_out],
                },
            ),
        ],
    )
    # A reference only: the proposals are encrypted until the review.
    await _deliver(tx, row, "work_order_review", {}, inbox=True)
    tx.notify_order(row.id)


async def _deliver(tx: UnitOfWork, row: OrderRow, kind: Any, more: Mapping[str, Any], *, inbox: bool = False) -> None:
    payload = {"trace_id": row.id, "policy_id": row.policy_id, "scope": row.scope, "trace": row.trace, **more}
    event = NewDelivery(
        id=new_id("dlv"), tenant_id=row.tenant_id, kind=kind, target=INBOX, payload=payload, agent_id=ORDER_AGENT
    )
    if inbox:
        # From the inbox it goes to the webhooks and channels of the reserved agent.
        await add_deliveries(tx.connection, [event])
    if inbox or await announce(tx.connection, event):
        tx.ring_deliveries()


def _end_entries(outcome: Outcome, result: Mapping[str, Any], reviewed: str | None) -> list[TrailEntry]:
    seen = {"status": result["status"], "stopReason": result["stopReason"], "needsHuman": result["needsHuman"]}
    review = {} if reviewed is None else {"reviewed": reviewed}
    left_out = [problem.to_wire() for problem in outcome.left_out]
    return [
        TrailEntry("customer", "ended", {**seen, **review}),
        TrailEntry(
            "internal",
            "ended",
            {
                **seen,
                **review,
                "internalStopReason": outcome.stop_reason,
                "leftOut": left_out,
                "costBreakdown": outcome.internal["costBreakdown"],
            },
        ),
    ]


def _ended(part: PartRow, outputs: Mapping[str, PartOutput]) -> EndedPart:
    output = outputs.get(part.id)
    return EndedPart(
        part.id,
        part.kind,
        part.round,
        part.position,
        part.stop_reason or "in_progress",
        part.confidence,
        part.approved,
        int(output.value["best"]) if output is not None and part.kind == "review" else None,
    )


def _proposal(ranked: Ranked, outputs: Mapping[str, PartOutput]) -> Proposal:
    part = ranked.part
    return Proposal(outputs[part.id].value, part.confidence or 0.0, ranked.votes, final=part.kind == "general")
