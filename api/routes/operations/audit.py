"""``/v1/audit``: what was changed, and by whom."""

from contextlib import ExitStack
from dataclasses import asdict, astuple
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from nova_workers.contracts.bodies import Moment, Page
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.http.overview.audit import AuditChainView, AuditEventView
from nova_workers.domain.archive.rules.audit import export_audit
from nova_workers.domain.audit.sql.listing import AuditFilter, get_audit_chain, list_audit, record_act
from nova_workers.ledger.auditing import acting_as
from nova_workers.ledger.visibility import see_all_tenants

from ...auth import Caller, KeysCaller
from ...guard.archives import ArchiveResponse
from ...json_body import StrictRoute
from ...openapi import json_lines, problems
from ...pagination import PageQuery
from ...state import State

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=StrictRoute)

_NAME = r"^[^\x00]+$"
_MAX_NAME = 300
_Word = Annotated[str | None, Query(max_length=_MAX_NAME, pattern=_NAME)]


def _filter(  # noqa: PLR0917 - a route's parameters are passed by name
    actor: Annotated[_Word, Query(description="Only what this key or agent did: its id.")] = None,
    action: Annotated[_Word, Query(description="Only this, such as `agent.updated`.")] = None,
    target_kind: Annotated[_Word, Query(description="Only things of this kind, such as `agent`.")] = None,
    target: Annotated[_Word, Query(description="Only the things with this id.")] = None,
    since: Annotated[Moment | None, Query(description="Not before.")] = None,
    until: Annotated[Moment | None, Query(description="Before this.")] = None,
) -> AuditFilter:
    return AuditFilter(actor, action, target_kind, target, since, until)


Which = Annotated[AuditFilter, Depends(_filter)]
TenantQuery = Annotated[
    str | None,
    Query(pattern=r"^[A-Za-z0-9_-]{1,80}$", description="Another tenant's log; needs the scope `operator`."),
]


@router.get("", responses=problems(400, 422))
async def list_audit_events(
    *,
    caller: KeysCaller,
    state: State,
    tenant: TenantQuery = None,
    paging: PageQuery,
    which: Which,
) -> Page[AuditEventView]:
    """List what was changed, newest first: by whom, which thing, and from where."""
    tenant_id = _readable(caller, tenant)
    listing = paging.of(caller.tenant_id, "audit", str, tenant_id, *astuple(which))
    async with state.services.database.connection() as connection:
        rows = await list_audit(connection, tenant_id, which, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda event: event.id)


@router.get("/chain", responses=problems(422))
async def get_chain(caller: KeysCaller, state: State, tenant: TenantQuery = None) -> AuditChainView:
    """Get where the chain over the records begins and ends. A head kept elsewhere proves that none was changed."""
    tenant_id = _readable(caller, tenant)
    async with state.services.database.connection() as connection:
        return await get_audit_chain(connection, tenant_id)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=problems(422, 429) | json_lines(MEDIA_TYPE, AuditEventView.__name__),
)
async def export_audit_events(
    *, caller: KeysCaller, state: State, which: Which, tenant: TenantQuery = None
) -> Response:
    """Export the log as of one moment, in lines of JSON, in the order of its chain; the export itself is recorded.

    One that is cut breaks its connection, in the middle of a chunked body: it never looks complete.
    """
    tenant_id = _readable(caller, tenant)
    services = state.services
    with ExitStack() as held:
        held.enter_context(state.archives.hold(caller.tenant_id))
        with acting_as(caller.actor()):
            async with services.database.connection() as connection:
                await record_act(connection, "audit.exported", "audit", tenant_id, asdict(which), tenant_id=tenant_id)
        lines = export_audit(services.archive_database, tenant_id, which)
        # The first line, before the answer begins: an unavailable database is a 503 and not a cut connection.
        first = await anext(lines, b"")
        return ArchiveResponse(first, lines, held=held.pop_all(), settings=services.settings.api)


def _readable(caller: Caller, tenant: str | None) -> str:
    """Return the tenant whose log is read: the caller's, or for operators another one."""
    tenant_id = tenant or caller.tenant_id
    if tenant_id != caller.tenant_id:
        caller.need("operator")
        see_all_tenants()
    return tenant_id
