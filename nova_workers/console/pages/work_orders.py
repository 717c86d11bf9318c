"""Work orders: the list without content, one with its trail and result, and the review of those that need a person."""

import asyncio
from dataclasses import replace
from operator import attrgetter
from typing import cast, get_args

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.base.vocabulary import OrderState
from nova_workers.console.access import if_allowed
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.order_payloads import NAME, load_form
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.rights import may
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
    return await _page(request)


async def _page(request: Request, sent: Form | None = None, problem: str | None = None) -> Response:
    """Return the page of an order.

    Args:
        request: For it, or of a form on it.
        sent: The form of the payload, as a browser sent it.
        problem: Why the API refused that payload.
    """
    client, trace_id = client_of(request), request.path_params["order"]
    orders = client.work_orders
    result, internal, trail, full_trail, parts = await asyncio.gather(
        orders.get(trace_id),
        if_allowed(orders.get(trace_id, internal=True), None),
        orders.trail(trace_id),
        if_allowed(orders.trail(trace_id, internal=True), None),
        if_allowed(orders.parts(trace_id), None),
    )
    result = internal or result
    decide = None
    if result.needs_human and may(f"/work-orders/{trace_id}/review"):
        decide = await load_form(client, trace_id, result.artifacts)
    if decide is not None and decide.root is not None and sent is not None:
        decide = replace(decide.read(sent), problem=problem)
    entries = [*trail.items, *(full_trail.items if full_trail else ())]
    return render(
        request,
        "work_orders/show.html",
        status=422 if decide is not None and (decide.errors or decide.problem) else 200,
        decide=decide,
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
    """Decide on an order in review. The form of an edit is shown again if its rows change, or if it is refused."""
    if request.method == "GET":
        return await _page(request)
    trace_id, form = request.path_params["order"], await read_form(request)
    client, verdict = client_of(request), form.value("verdict")
    calls, given = client.work_orders, dict[str, object](verdict=verdict, payload=None)
    has_fields = verdict == "edit" and NAME not in form.values
    if has_fields:
        decide = await load_form(client, trace_id, (await calls.get(trace_id)).artifacts)
        if decide.root is None:
            raise InvalidInput("The payload is edited as JSON.", field=NAME, status=422)
        decide = decide.read(form)
        if form.given("do") or decide.errors or decide.problem:
            return await _page(request, form, decide.problem)
        given["payload"] = decide.payload
    elif verdict == "edit":
        given["payload"] = _parsed(form.value(NAME))
    try:
        await calls.review(trace_id, build(OrderReview, given))
    except InvalidInput as error:
        if has_fields:
            return await _page(request, form, error.message)
        return see_other(request, f"/work-orders/{trace_id}", flash=error.message, kind="bad")
    except Conflict as error:
        return see_other(request, f"/work-orders/{trace_id}", flash=error.message, kind="bad")
    return see_other(request, f"/work-orders/{trace_id}", flash="Decided.")


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"The payload is no JSON: {error}.", field=NAME, status=422) from error


PAGE = PageModule(
    routes=(
        Route("/work-orders", show_list),
        Route("/work-orders/{order:id}", show),
        Route("/work-orders/{order:id}/review", review, methods=["GET", "POST"]),
    ),
    nav=(NavEntry("Account", "Work orders", "/work-orders", "orders", scope="runs:read"),),
)
