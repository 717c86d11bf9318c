"""``/v1/leases``: exclusion among the processes of a client, such as those of a channel."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import StringConstraints

from api.auth import SubmittingCaller
from api.json_body import StrictRoute
from api.openapi import problems
from api.state import State
from nova_workers.contracts.http.leases import LEASE_NAME_PATTERN, LeaseRequest, LeaseView
from nova_workers.ledger.tenants.leases import acquire_lease, renew_lease

__all__ = ["router"]

router = APIRouter(prefix="/v1/leases", tags=["leases"], route_class=StrictRoute)

LeaseName = Annotated[
    Annotated[str, StringConstraints(pattern=LEASE_NAME_PATTERN)],
    Path(description="The lease's name, such as channel:telegram:1234."),
]


@router.put("/{name}", responses=problems(409, body=True))
async def put_lease(name: LeaseName, body: LeaseRequest, caller: SubmittingCaller, state: State) -> LeaseView:
    """Acquire a lease, or with its fence renew it, write its state, or release it.

    409 if another process holds it, or has acquired it since.
    """
    async with state.services.database.connection() as connection:
        if body.fence is None:
            return await acquire_lease(connection, caller.tenant_id, name, body)
        return await renew_lease(connection, caller.tenant_id, name, body, fence=body.fence)
