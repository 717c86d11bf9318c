"""Work orders: the list without content, one with its trail and result, and the review of those that need a person."""

import asyncio
from operator import attrgetter
from typing import cast, get_args

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import OrderState
from nova_workers.console.access import if_allowed
from nova_workers.console.actions import act
from nova_workers.console.forms import build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.work_orders import OrderReview


async def show_list(request: Request) -> Response:
    """Show a page of orders, newest first, and the policies that apply."""
    client = client_of(request)
    page, policies = await asyncio.gather(
        client.work_orders.list(
            # The API refuses other words, with a message that lists these.
            state=cast(OrderState | None, filter_of(request, "state")),
            policy_id=filter_of(request, "policy"),
            limit=PAGE_SIZE,
            cursor=cursor_of(request),
        ),
        if_allowed(client.work_order_policies.list(), None),
    )
    return render(
        request,
        "work_orders/list.html",
        orders=page.items,
        pager=pager(request, page),
        states=get_args(OrderState),
        policies=policies.items if policies else None,
    )


async def show(request: Request) -> Response:
    """Show an order: its result, its runs with their costs, and what happened to it; of these what the key may see."""
    orders, trace_id = client_of(request).work_orders, request.path_params["order"]
    result, internal, trail, full_trail, parts = await asyncio.gather(
        orders.get(trace_id),
        if_allowed(orders.get(trace_id, internal=True), None),
        orders.trail(trace_id),
        if_allowed(orders.trail(trace_id, internal=True), None),
        if_allowed(orders.parts(trace_id), None),
    )
    result = internal or result
    entries = [*trail.items, *(full_trail.items if full_trail else ())]
    return render(
        request,
        "work_orders/show.html",
        trace_id=trace_id,
        result=result,
        wire=result.to_wire(),
        artifacts=[artifact.model_dump(mode="json") for artifact in result.artifacts],
        trail=sorted(entries, key=attrgetter("created_at", "id")),
        parts=None if parts is None else parts.items,
        cost=0.0 if parts is None else sum(part.cost_usd + part.lost_usd for part in parts.items),
        state=result.stop_reason,
    )


async def review(request: Request) -> Response:
    """Decide on an order in review."""
    trace_id, form = request.path_params["order"], await read_form(request)
    payload = form.given("payload") if form.value("verdict") == "edit" else None
    try:
        given = {"verdict": form.value("verdict"), "payload": None if payload is None else orjson.loads(payload)}
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"The payload is no JSON: {error}.", field="payload", status=422) from error
    calls = client_of(request).work_orders
    return await act(
        request, f"/work-orders/{trace_id}", lambda: calls.review(trace_id, build(OrderReview, given)), "Decided."
    )


PAGE = PageModule(
    routes=(
        Route("/work-orders", show_list),
        Route("/work-orders/{order:id}", show),
        Route("/work-orders/{order:id}/review", review, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Work orders", "/work-orders", "orders", scope="runs:read"),),
)
