"""``/v1/fleet``: runs, queues and workers of the fleet, and its pauses."""

import structlog
from fastapi import APIRouter

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.doors import DoorsView
from nova_workers.contracts.http.fleet import (
    FleetPause,
    FleetTop,
    FleetView,
    ProvidersClear,
    ProvidersCleared,
    ProvidersView,
    QueuedView,
    WorkerDrain,
)
from nova_workers.domain.agents.sql import records as agents
from nova_workers.domain.runs.rules.drains import order_drain
from nova_workers.domain.runs.sql import fleet as ledger
from nova_workers.domain.runs.sql.drains import list_drains
from nova_workers.domain.runs.sql.holds import count_held, hasten
from nova_workers.domain.runs.sql.queued import count_queued
from nova_workers.domain.runs.sql.top import last_minute, longest_running
from nova_workers.ledger.database import Connection
from nova_workers.ledger.visibility import see_all_tenants

from ...auth import AnyCaller, Caller, OperatorCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import WorkerIdPath
from ...providers import clear_rests, provider_rests
from ...state import ApiState, State
from ...workers import live_workers, name_missing_workers, with_drains

_log = structlog.get_logger(__name__)

router = APIRouter(prefix="/v1/fleet", tags=["fleet"], route_class=StrictRoute)


@router.get("", responses=problems())
async def get_fleet(caller: AnyCaller, state: State) -> FleetView:
    """Get runs by status, queues, workers and pauses: of the key's tenant, or of all with the scope `operator`.

    Workers are shown to operators only.
    """
    _see_what_it_may(caller)
    async with state.services.database.connection() as connection:
        view = await _read(connection, caller)
    return await _with_workers(view, caller, state)


@router.get("/top", responses=problems(), name="get_fleet_top")
async def get_top(caller: AnyCaller, state: State) -> FleetTop:
    """Get the fleet, the runs that run longest, and what ended in the last minute."""
    _see_what_it_may(caller)
    tenant_id = None if caller.may("operator") else caller.tenant_id
    async with state.services.database.connection() as connection:
        view = await _read(connection, caller)
        longest = list(await longest_running(connection, tenant_id))
        minute = await last_minute(connection, tenant_id)
    fleet = await _with_workers(view, caller, state)
    return FleetTop(at=state.services.clock.now(), fleet=fleet, longest=longest, last_minute=minute)


@router.get("/queued", responses=problems(), name="get_queued_runs")
async def get_queued(caller: AnyCaller, state: State) -> QueuedView:
    """Get why queued runs wait: how many of each queue for which reason."""
    _see_what_it_may(caller)
    async with state.services.database.connection() as connection:
        groups = await count_queued(connection, None if caller.may("operator") else caller.tenant_id)
    return QueuedView(groups=await name_missing_workers(state.services.redis, groups))


@router.get("/doors", responses=problems(), name="get_doors")
async def get_doors(caller: AnyCaller, state: State) -> DoorsView:
    """Get the API's address for clients, and the protocols that it speaks beside this one."""
    return DoorsView(public_url=state.services.settings.api.public_url, doors=list(state.doors))


@router.post("/pause", responses=problems(404, 410, body=True))
async def pause_fleet(body: FleetPause, caller: AnyCaller, state: State) -> FleetView:
    """Start no new runs in the scope. Running ones continue, queued ones stay queued."""
    switch = _switch(body, caller)
    async with state.services.work.begin() as tx:
        await _check(tx.connection, switch)
        await ledger.pause(tx.connection, switch, body.reason)
        view = await _read(tx.connection, caller)
    return await _with_workers(view, caller, state)


@router.post("/resume", responses=problems(404, 410, body=True))
async def resume_fleet(body: FleetPause, caller: AnyCaller, state: State) -> FleetView:
    """End a pause of the scope. Resuming a scope that is not paused changes nothing."""
    switch = _switch(body, caller)
    async with state.services.work.begin() as tx:
        await _check(tx.connection, switch)
        tx.ring(await ledger.resume(tx.connection, switch))
        view = await _read(tx.connection, caller)
    return await _with_workers(view, caller, state)


@router.post("/workers/{worker_id}/drain", responses=problems(404))
async def drain_worker(worker_id: WorkerIdPath, caller: OperatorCaller, state: State) -> WorkerDrain:
    """Let a worker take no new runs, requeue those that it executes at their next step, and end its process.

    It begins within seconds, and cannot be undone. Ordering it again changes nothing.
    """
    see_all_tenants()
    live = await live_workers(state.services.redis)
    async with state.services.work.begin() as tx:
        drain = await order_drain(tx.connection, worker_id, live)
    _log.info("worker.drain_requested", worker_id=worker_id, api_key_id=caller.key_id)
    return drain


@router.get("/providers", responses=problems(), name="list_providers")
async def get_providers(caller: OperatorCaller, state: State) -> ProvidersView:
    """Get the keys of model providers that rest, and the models that fail, with reason, last error and next try."""
    rests = await provider_rests(state.services.redis)
    return ProvidersView(rests=rests or [], redis_answers=rests is not None)


@router.post("/providers/clear", responses=problems(body=True))
async def clear_providers(body: ProvidersClear, caller: OperatorCaller, state: State) -> ProvidersCleared:
    """Forget rests and failures of a provider, a model or a profile, or of all: workers call them again.

    Held runs try again at once.
    """
    see_all_tenants()
    async with state.services.work.begin() as tx:
        # The reconciler lets one run of each outage try within seconds; its answer releases the others.
        await hasten(tx.connection, body.name)
        # Before the commit, so that what is cleared is recorded, and what is not is not.
        cleared = await clear_rests(state.services.redis, body.name)
    _log.info("providers.cleared", name=body.name, cleared=cleared, api_key_id=caller.key_id)
    rests = await provider_rests(state.services.redis)
    return ProvidersCleared(rests=rests or [], redis_answers=rests is not None, cleared=cleared)


def _switch(body: FleetPause, caller: Caller) -> ledger.Switch:
    """Return the switch of a request, if the caller may change it."""
    caller.need("operator" if body.scope == "fleet" else "pause")
    _see_what_it_may(caller)
    if (body.scope == "agent") != (body.agent_id is not None):
        raise InvalidInput("agent_id goes with the scope 'agent', and only with it.", field="agent_id")
    return ledger.Switch(body.scope, caller.tenant_id, body.agent_id)


def _see_what_it_may(caller: Caller) -> None:
    """Show the statements of the request the rows of all tenants, if the caller is an operator."""
    if caller.may("operator"):
        see_all_tenants()


async def _check(connection: Connection, switch: ledger.Switch) -> None:
    if switch.agent_id is not None:
        await agents.get_agent(connection, switch.tenant_id, switch.agent_id)


async def _read(connection: Connection, caller: Caller) -> FleetView:
    tenant_id = None if caller.may("operator") else caller.tenant_id
    depth = await ledger.fleet_depth(connection, tenant_id)
    return FleetView(
        runs=dict(depth.runs),
        queues=list(depth.queues),
        workers=None,
        switches=await ledger.list_switches(connection, tenant_id),
        held=await count_held(connection, tenant_id),
        drained=await list_drains(connection) if caller.may("operator") else [],
    )


async def _with_workers(view: FleetView, caller: Caller, state: ApiState) -> FleetView:
    """Return a view with live workers; in `drained` it has the orders to them until then."""
    live = await live_workers(state.services.redis)
    workers, drained = with_drains(live, view.drained)
    shown = workers if caller.may("operator") else None
    return view.model_copy(update={"workers": shown, "drained": drained, "redis_answers": live is not None})
