"""A person's decision on the outcome of an order. It ends the order, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova_workers.base.errors import Conflict, InvalidInput, missing
from nova_workers.base.json_schemas import InvalidSchema, JsonSchema
from nova_workers.base.vocabulary import ReviewVerdict
from nova_workers.contracts.orders import AiArtifactV1, AiWorkResultV1
from nova_workers.domain.orders.rules.advance import OpenOrder, finish, open_draft, open_order
from nova_workers.domain.orders.rules.checker import split_safe
from nova_workers.domain.orders.rules.checking.leaks import LeakCheck
from nova_workers.domain.orders.rules.presentation import Proposal, artifacts_of
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.views import OrderViews
from nova_workers.domain.orders.sql.records import OrderRow, get_order, lock_order
from nova_workers.ledger.work import Work


class OrderReviews:
    """Applies decisions."""

    def __init__(self, work: Work, keys: OrderKeys) -> None:
        self._work = work
        self._keys = keys
        self._views = OrderViews(keys)

    async def decide(
        self, tenant_id: str, trace_id: str, verdict: ReviewVerdict, *, payload: dict[str, Any] | None, by: str
    ) -> AiWorkResultV1:
        """End an order in review, and return its result.

        Args:
            trace_id: The order.
            verdict: ``approve`` returns the proposals as they are, ``edit`` the given payload, ``reject`` none.
            payload: With ``edit``: the payload of the artifact.
            by: The key of the person.

        Raises:
            NotFound: No such order in this tenant.
            Conflict: It is not in review, or there is nothing to approve.
            InvalidInput: The payload does not fulfil its schema, or is not safe for customers.
        """
        if (payload is not None) != (verdict == "edit"):
            raise InvalidInput("payload: give it with the verdict 'edit', and only then.", field="payload")
        # Before the transaction, since it may take seconds: the policy of an order never changes.
        edited = None if payload is None else await self._checked(tenant_id, trace_id, payload)
        async with self._work.begin() as tx:
            connection = tx.connection
            row = await lock_order(connection, trace_id)
            if row is None or row.tenant_id != tenant_id:
                raise missing("work_order", trace_id)
            _check_in_review(row)
            order = await open_order(connection, row, self._keys)
            proposals = _decided(order, verdict) if edited is None else [edited]
            check = await order.check_of(connection, proposals)
            if proposals:
                _refuse_unsafe(artifacts_of(proposals, order.content.policy), check)
            await finish(
                tx,
                order,
                proposals,
                "needs_human" if verdict == "reject" else "ok",
                cached=True,
                needs_human=False,
                reviewed=verdict,
                reviewed_by=by,
                check=check,
            )
            ended = await get_order(connection, tenant_id, trace_id)
            return await self._views.result(connection, ended, mode=None, shared=False, internal=False, drafts=True)

    async def _checked(self, tenant_id: str, trace_id: str, payload: dict[str, Any]) -> Proposal:
        """Return the payload of an edit as the proposal that it becomes, if it may become one."""
        async with self._work.database.connection() as connection:
            row = await get_order(connection, tenant_id, trace_id)
            _check_in_review(row)
            order = await open_order(connection, row, self._keys)
            check = await order.check_of(connection, [])
        policy = order.content.policy
        try:
            schema = JsonSchema(policy.payload_schema())
        except InvalidSchema as error:
            raise InvalidInput(
                f"payload: nothing fulfils the schema of {policy.produces!r}, which is not accepted: "
                f"{error.why[:200]}. Approve or reject.",
                field="payload",
            ) from error
        for problem in await schema.problems(payload):
            raise InvalidInput(
                f"payload: at {problem.place} it does not fulfil the schema of {policy.produces!r} "
                f"({problem.keyword}).",
                field="payload",
            )
        proposal = Proposal(payload, final=True)
        artifacts = artifacts_of([proposal], policy)
        await check.read(artifacts)
        _refuse_unsafe(artifacts, check)
        return proposal


def _check_in_review(row: OrderRow) -> None:
    if row.state != "review":
        raise Conflict(
            f"Work order {row.id!r} is not in review: its state is {row.state!r}. Read its result with "
            f"GET /v1/work-orders/{row.id}.",
            state=row.state,
        )


def _decided(order: OpenOrder, verdict: ReviewVerdict) -> list[Proposal]:
    """Return the proposals with which an order ends that is approved as it is, or rejected."""
    if verdict == "reject":
        return []
    proposals = open_draft(order)
    if not proposals:
        raise Conflict("There is no proposal to approve. Edit: give the payload of the artifact; or reject.")
    return proposals


def _refuse_unsafe(artifacts: Sequence[AiArtifactV1], check: LeakCheck) -> None:
    safe, left_out = split_safe(artifacts, check)
    if not safe:
        rules = "; ".join(dict.fromkeys(problem.rule for problem in left_out))
        raise InvalidInput(f"payload: it is not safe for customers: {rules}. Edit it.", field="payload")
