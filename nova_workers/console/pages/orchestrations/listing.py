"""Orchestrations: the list, and starting one."""

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Rejected
from nova_workers.console.access import agent_choices
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.orchestrations import OrchestrationCreate

_FLAGS = {"yes": True, "no": False}


async def show(request: Request) -> Response:
    """Show a page of orchestrations, newest first."""
    page = await client_of(request).orchestrations.list(
        open=_FLAGS.get(filter_of(request, "open") or ""),
        agent_id=filter_of(request, "agent"),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(request, "orchestrations/list.html", orchestrations=page.items, pager=pager(request, page))


async def new(request: Request) -> Response:
    """Show an empty form, and start an orchestration."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        given = {"task": form.value("task"), "agent_id": form.value("agent_id")}
        given |= {name: text for name in ("model", "cwd", "cost_budget_usd") if (text := form.given(name)) is not None}
        try:
            task = build(OrchestrationCreate, given)
            started = await client_of(request).orchestrations.start(task, idempotency_key=form.given("key"))
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/orchestrations/{started.id}", flash="The orchestration has begun.")
    return render(
        request,
        "orchestrations/new.html",
        status=422 if form.problem else 200,
        form=form,
        agents=await agent_choices(client_of(request)),
    )
