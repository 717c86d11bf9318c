"""The tenant: hours, share, caps, budgets and pauses."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected
from nova_workers.console.access import if_allowed
from nova_workers.console.actions import act
from nova_workers.console.forms import Form, build, changes, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.fleet import FleetPause
from nova_workers.contracts.http.tenants import TenantPatch

_FIELDS = ("timezone", "work_from", "work_until", "work_every_s", "max_cost_usd_per_day", "weight", "max_running")


async def show(request: Request) -> Response:
    """Show the tenant with its budgets, and change its settings."""
    client, form = client_of(request), Form()
    before = await client.tenants.get()
    if request.method == "POST":
        form = await read_form(request)
        given = {name: form.given(name) for name in _FIELDS if name in form.values}
        try:
            await client.tenants.patch(changes(TenantPatch, before, given))
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, "/tenant", flash="Saved.")
    budgets, fleet = await asyncio.gather(if_allowed(client.tenants.budgets(), None), client.fleet.view())
    return render(
        request,
        "tenant/show.html",
        status=422 if form.problem else 200,
        form=form,
        tenant=before,
        budgets=budgets,
        switches=fleet.switches,
    )


async def pause(request: Request) -> Response:
    """Start no new runs of the tenant, or of one agent."""
    form = await read_form(request)
    scope = "agent" if form.given("agent_id") else "tenant"
    given = {"scope": scope, "agent_id": form.given("agent_id"), "reason": form.given("reason")}
    calls = client_of(request).fleet
    return await act(request, "/tenant", lambda: calls.pause(build(FleetPause, given)), "Paused: no new run starts.")


async def resume(request: Request) -> Response:
    """End a pause."""
    form = await read_form(request)
    given = {"scope": form.value("scope"), "agent_id": form.given("agent_id")}
    calls = client_of(request).fleet
    return await act(request, "/tenant", lambda: calls.resume(build(FleetPause, given)), "Runs start again.")


PAGE = PageModule(
    routes=(
        Route("/tenant", show, methods=["GET", "POST"]),
        Route("/tenant/pause", pause, methods=["POST"]),
        Route("/tenant/resume", resume, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Tenant", "/tenant", "tenant"),),
)
