"""``/v1/leases``: exclusion among the processes of a client, such as those of a channel."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import StringConstraints

from nova_workers.contracts.http.leases import LEASE_NAME_PATTERN, LeaseRequest, LeaseView
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.keys.sql.leases import acquire_lease, renew_lease
from nova_workers.ledger.auditing import acting_as

from ...auth import ChannelsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/leases", tags=["leases"], route_class=StrictRoute)

LeaseName = Annotated[
    Annotated[str, StringConstraints(pattern=LEASE_NAME_PATTERN)],
    Path(description="The lease's name, such as channel:telegram:1234."),
]


@router.put("/{name}", responses=problems(409, body=True))
async def put_lease(name: LeaseName, body: LeaseRequest, caller: ChannelsCaller, state: State) -> LeaseView:
    """Acquire a lease, or with its token renew it, write its state, or release it.

    409 if another process holds it, or has acquired it since.
    """
    database, tenant_id = state.services.database, caller.tenant_id
    if body.token is not None and body.ttl_s > 0:
        # Every few seconds, and no change: the holder stays.
        async with database.connection() as connection:
            return await renew_lease(connection, tenant_id, name, body, token=body.token)
    with acting_as(caller.actor()):
        async with database.transaction() as connection:
            if body.token is None:
                lease, action = await acquire_lease(connection, tenant_id, name, body), "lease.acquired"
            else:
                lease = await renew_lease(connection, tenant_id, name, body, token=body.token)
                action = "lease.released"
            about = {"holder": lease.holder, "fence": lease.fence}
            await record_act(connection, action, "lease", name, about)
            return lease
