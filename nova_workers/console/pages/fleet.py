"""The fleet: workers, queues, pauses, and for operators its tenants."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.access import if_allowed
from nova_workers.console.actions import act
from nova_workers.console.forms import build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.fleet import FleetPause
from nova_workers.contracts.http.tenants import TenantChange

__all__ = ["PAGE"]


async def show(request: Request) -> Response:
    """Show the fleet."""
    client = client_of(request)
    fleet, checks, tenants = await asyncio.gather(
        client.fleet.view(),
        client.checks(),
        if_allowed(client.tenants.list(limit=PAGE_SIZE, cursor=cursor_of(request)), None),
    )
    return render(request, "fleet/show.html", fleet=fleet, checks=checks, tenants=tenants)


async def pause(request: Request) -> Response:
    """Start no new runs in the whole fleet."""
    form = await read_form(request)
    given = {"scope": "fleet", "reason": form.given("reason")}
    calls = client_of(request).fleet
    return await act(request, "/fleet", lambda: calls.pause(build(FleetPause, given)), "The fleet starts no new runs.")


async def resume(request: Request) -> Response:
    """End the pause of the fleet."""
    calls = client_of(request).fleet
    return await act(request, "/fleet", lambda: calls.resume(FleetPause(scope="fleet")), "The fleet starts runs again.")


async def switch_tenant(request: Request) -> Response:
    """Pause a tenant, or end its pause."""
    form = await read_form(request)
    paused = form.value("paused") == "yes"
    calls, tenant_id = client_of(request).tenants, request.path_params["tenant"]
    return await act(
        request,
        "/fleet",
        lambda: calls.change(tenant_id, TenantChange(paused=paused)),
        "The tenant is paused." if paused else "The tenant works again.",
    )


PAGE = PageModule(
    routes=(
        Route("/fleet", show),
        Route("/fleet/pause", pause, methods=["POST"]),
        Route("/fleet/resume", resume, methods=["POST"]),
        Route("/fleet/tenants/{tenant:id}", switch_tenant, methods=["POST"]),
    ),
    nav=(NavEntry("Fleet", "Fleet", "/fleet", "fleet", key="l"),),
)
