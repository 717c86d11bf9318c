"""The result of an order as a reader gets it: while it runs, in review, and after its end."""

from __future__ import annotations

from typing import Any

from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders import AiWorkResultV1, OrderWait, ResultExtensions, customer_stop
from nova_workers.domain.orders.rules.advance import open_draft, open_order
from nova_workers.domain.orders.rules.outcome import outcome_of, result_without_outcome
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.sql.records import HeldPart, OrderRow, held_parts
from nova_workers.ledger.database import Connection


class OrderViews:
    """Builds results."""

    def __init__(self, keys: OrderKeys) -> None:
        self._keys = keys

    async def result(
        self,
        connection: Connection,
        row: OrderRow,
        *,
        mode: PresentationMode | None,
        shared: bool,
        internal: bool,
        drafts: bool,
    ) -> AiWorkResultV1:
        """Return the result of an order. See `Orders.result_of`."""
        if row.state == "running":
            held = await held_parts(connection, row.id)
            return running_result(row.id, None if not held else _wait(held[0], internal=internal))
        stored = row.outcome if row.state == "ended" else await self._in_review(connection, row, drafts=drafts)
        return _result(row, stored or {}, mode=mode, shared=shared, internal=internal)

    async def _in_review(self, connection: Connection, row: OrderRow, *, drafts: bool) -> dict[str, Any]:
        order = await open_order(connection, row, self._keys)
        reason = row.stop_reason or "needs_human"
        proposals = open_draft(order) if drafts else []
        check = await order.check_of(connection, proposals)
        return outcome_of(row.id, order.content, order.parts, proposals, reason, check, in_review=True).stored()


def running_result(trace_id: str, waiting: OrderWait | None = None) -> AiWorkResultV1:
    """Return the present state of an order that runs."""
    message = None if waiting is None else customer_stop("provider_failed").message
    return AiWorkResultV1(
        version="v1",
        status="in_progress",
        stop_reason="in_progress",
        needs_human=False,
        trace_id=trace_id,
        artifacts=[],
        customer_safe=True,
        extensions=None if waiting is None else ResultExtensions(message=message, waiting=waiting),
    )


def _wait(held: HeldPart, *, internal: bool) -> OrderWait:
    """Return the wait of an order, without names for readers who are not internal."""
    next_try_in_ms = None if held.next_try_in_s is None else max(round(held.next_try_in_s * 1000), 0)
    wait = OrderWait(waited_ms=round(held.waited_s * 1000), next_try_in_ms=next_try_in_ms)
    if not internal:
        return wait
    detail = held.detail
    shown = {
        "reason": detail.outage,
        "provider": detail.provider,
        "message": detail.message,
        "advice": detail.advice,
    }
    return wait.model_copy(update=shown)


def _result(
    row: OrderRow, stored: dict[str, Any], *, mode: PresentationMode | None, shared: bool, internal: bool
) -> AiWorkResultV1:
    results: dict[str, dict[str, Any]] = stored.get("results", {})
    wire = results.get(mode or "") or results.get(row.presentation_mode or "") or next(iter(results.values()), None)
    if wire is None:
        # It could not be completed because of a defect.
        return result_without_outcome(row.id, row.stop_reason or "provider_failed", needs_human=row.needs_human)
    extensions: dict[str, Any] = dict(wire.get("extensions", {}))
    if internal:
        extensions |= stored["internal"]
    if shared and "meta" in extensions:
        extensions["meta"] = {**extensions["meta"], "cached": True}
    return AiWorkResultV1.from_wire({**wire, "extensions": extensions})
