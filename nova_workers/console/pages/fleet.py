"""The fleet: workers, queues, pauses, and for operators its tenants and model providers."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected
from nova_workers.console.access import if_allowed
from nova_workers.console.actions import act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of
from nova_workers.console.queued import hints_of
from nova_workers.console.rendering import render, see_other
from nova_workers.console.schema_forms import Shape, make_node, read_value, shape_of, split_errors
from nova_workers.console.state import client_of
from nova_workers.contracts.http.fleet import FleetPause, served_by_none_but
from nova_workers.contracts.http.tenants import TenantChange


async def show(request: Request) -> Response:
    """Show the fleet."""
    client = client_of(request)
    fleet, queued, checks, tenants, providers, channels = await asyncio.gather(
        client.fleet.view(),
        client.fleet.queued(),
        client.checks(),
        if_allowed(client.tenants.list(limit=PAGE_SIZE, cursor=cursor_of(request)), None),
        if_allowed(client.fleet.providers(), None),
        if_allowed(client.inbound_channels.list(), None),
    )
    return render(
        request,
        "fleet/show.html",
        fleet=fleet,
        hints=hints_of(fleet, queued),
        alone={worker.id: served_by_none_but(worker, fleet.workers or ()) for worker in fleet.workers or ()},
        checks=checks,
        tenants=tenants,
        providers=providers,
        channels=channels.items if channels else [],
    )


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


async def drain_worker(request: Request) -> Response:
    """Let a worker requeue its runs and end."""
    calls, worker_id = client_of(request).fleet, request.path_params["worker"]
    return await act(
        request, "/fleet", lambda: calls.drain_worker(worker_id), "The worker drains: it begins within seconds."
    )


async def clear_providers(request: Request) -> Response:
    """Forget rests and failures of a provider, a model or a key."""
    form = await read_form(request)
    calls = client_of(request).fleet
    return await act(
        request, "/fleet", lambda: calls.clear_providers(form.given("name")), "Workers call the provider again."
    )


async def retry_channel(request: Request) -> Response:
    """Let an inbound channel that rests after failures try now."""
    calls, name = client_of(request).inbound_channels, request.path_params["channel"]
    return await act(request, "/fleet", lambda: calls.retry(name), "It tries within seconds.")


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


async def ceilings(request: Request) -> Response:
    """Show what a tenant's agents may be given at most, and change it."""
    client, tenant_id = client_of(request), request.path_params["tenant"]
    tenant = await client.tenants.find(tenant_id)
    value: object = {"ceilings": None if tenant.ceilings is None else tenant.ceilings.model_dump(mode="json")}
    errors: Mapping[str, str] = {}
    problem: str | None = None
    if request.method == "POST":
        reading = read_value(_ceilings_shape(), await read_form(request))
        value = {"ceilings": None, **cast(Mapping[str, object], reading.value)}
        try:
            await client.tenants.change(tenant_id, build(TenantChange, value))
        except Rejected as error:
            errors, problem = Form().refused(error).errors, error.message
        else:
            return see_other(request, "/fleet", flash=f"The ceilings of {tenant.name} are saved.")
    root = make_node(_ceilings_shape(), value)
    placed, _ = split_errors(root, errors)
    return render(
        request,
        "fleet/ceilings.html",
        status=422 if problem else 200,
        tenant=tenant,
        root=root,
        errors=placed,
        problem=problem,
    )


@cache
def _ceilings_shape() -> Shape:
    """Return the shape of one field of `TenantChange`; the others are on the tenant's page."""
    shape = shape_of(TenantChange.model_json_schema())
    return replace(shape, fields={"ceilings": shape.fields["ceilings"]})


PAGE = PageModule(
    routes=(
        Route("/fleet", show),
        Route("/fleet/pause", pause, methods=["POST"]),
        Route("/fleet/resume", resume, methods=["POST"]),
        Route("/fleet/workers/{worker:id}/drain", drain_worker, methods=["POST"]),
        Route("/fleet/providers/clear", clear_providers, methods=["POST"]),
        Route("/fleet/channels/{channel:id}/retry", retry_channel, methods=["POST"]),
        Route("/fleet/tenants/{tenant:id}", switch_tenant, methods=["POST"]),
        Route("/fleet/tenants/{tenant:id}/ceilings", ceilings, methods=["GET", "POST"]),
    ),
    nav=(NavEntry("Fleet", "Fleet", "/fleet", "fleet", key="l"),),
)
