"""``/v1/inbound-channels``: the processes through which people write to agents, and their rest after failures."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import StringConstraints

from nova_workers.base.errors import missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.inbound_channels import InboundChannelView
from nova_workers.domain.keys.sql.inbound_channels import list_inbound_channels, request_retry

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/inbound-channels", tags=["inbound-channels"], route_class=StrictRoute)

ChannelName = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._:-]{0,91}$")],
    Path(description="A channel's name, such as telegram:1234."),
]


@router.get("", responses=problems(), name="list_inbound_channels")
async def list_all_inbound_channels(caller: WorkspaceReader, state: State) -> Page[InboundChannelView]:
    """List the inbound channels that a process serves or has served, with the reason where one rests."""
    async with state.services.database.connection() as connection:
        return Page(items=await list_inbound_channels(connection, caller.tenant_id))


@router.post("/{channel}/retry", status_code=204, responses=problems(404))
async def retry_inbound_channel(channel: ChannelName, caller: WorkspaceCaller, state: State) -> None:
    """Let a channel that rests after failures try now: within seconds. Nothing changes for one that works."""
    async with state.services.database.connection() as connection:
        if not await request_retry(connection, caller.tenant_id, channel):
            raise missing("inbound_channel", channel)
