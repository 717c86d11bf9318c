"""``/v1/deliveries``, ``/v1/delivery-targets`` and ``/v1/files``: what agents deliver to people, and their files."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import StringConstraints

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import (
    INBOX,
    DeliveryKind,
    DeliveryStatus,
    DeliveryView,
    SentFileView,
    WaitingTarget,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.delivery.sql.deliveries import close_delivery, get_delivery, list_deliveries
from nova_workers.domain.delivery.sql.targets import list_waiting_targets
from nova_workers.domain.files import rules as files
from nova_workers.domain.files.sql import list_files

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, DeliveryIdPath, DeliveryTargetPath, FileIdPath, ThreadIdQuery, WebhookIdQuery
from ...state import State

router = APIRouter(prefix="/v1", tags=["deliveries"], route_class=StrictRoute)

# An agent chose these bytes: they must not run as a page of this origin. (Every response has `nosniff`.)
_INERT = {"content-security-policy": "default-src 'none'; sandbox"}

_CONTENT = {
    200: {
        "description": "The bytes, to be saved and not to be shown.",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}


Channel = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None,
    Query(description="Only what goes through this channel."),
]


@router.get("/deliveries", responses=problems(400, 410, 422), name="list_deliveries")
async def list_all_deliveries(
    *,
    caller: WorkspaceReader,
    state: State,
    kind: Annotated[DeliveryKind | None, Query(description="Only of this kind.")] = None,
    status: Annotated[DeliveryStatus | None, Query(description="Only with this status.")] = None,
    agent_id: AgentIdQuery = None,
    webhook_id: WebhookIdQuery = None,
    channel: Channel = None,
    paging: PageQuery,
) -> Page[DeliveryView]:
    """List the inbox, newest first: notifications, files, shared notes, questions and approvals.

    With `webhook_id` or `channel` the deliveries to it.
    """
    target = webhook_id or channel or INBOX
    listing = paging.of(caller.tenant_id, "deliveries", str, kind, status, agent_id, target)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await list_deliveries(
            connection,
            caller.tenant_id,
            target=target,
            kind=kind,
            status=status,
            agent_id=agent_id,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda delivery: delivery.id)


@router.get("/deliveries/{delivery_id}", responses=problems(404), name="get_delivery")
async def get_one_delivery(delivery_id: DeliveryIdPath, caller: WorkspaceReader, state: State) -> DeliveryView:
    """Get a delivery."""
    async with state.services.database.connection() as connection:
        return await get_delivery(connection, caller.tenant_id, delivery_id)


@router.post("/deliveries/{delivery_id}/replay", status_code=202, responses=problems(404, 409))
async def replay_delivery(delivery_id: DeliveryIdPath, caller: WorkspaceCaller, state: State) -> DeliveryView:
    """Send a delivery again that ended, or at once one that waits for its next attempt. It keeps its id."""
    return await state.services.webhooks.replay(caller.tenant_id, delivery_id, may_audit=caller.may("keys"))


@router.post("/deliveries/{delivery_id}/close", responses=problems(404, 409), name="close_delivery")
async def close_one_delivery(delivery_id: DeliveryIdPath, caller: WorkspaceCaller, state: State) -> DeliveryView:
    """Close a notification, file or note in the inbox. A closed item stays closed; questions close when answered."""
    async with state.services.database.connection() as connection:
        return await close_delivery(connection, caller.tenant_id, delivery_id)


@router.get("/delivery-targets", responses=problems(), name="list_delivery_targets")
async def list_all_delivery_targets(caller: WorkspaceReader, state: State) -> Page[WaitingTarget]:
    """List the webhooks and channels that failed and have deliveries that wait for their next attempt."""
    async with state.services.database.connection() as connection:
        return Page(items=await list_waiting_targets(connection, caller.tenant_id))


@router.post("/delivery-targets/{target}/retry", status_code=204, responses=problems(404, 409))
async def retry_delivery_target(target: DeliveryTargetPath, caller: WorkspaceCaller, state: State) -> None:
    """Try what waits for a webhook or a channel at once, and end the webhook's rest. Idempotent."""
    await state.services.webhooks.retry(caller.tenant_id, target)


@router.get("/files", responses=problems(400, 410, 422), name="list_files")
async def list_sent_files(
    *,
    caller: WorkspaceReader,
    state: State,
    agent_id: AgentIdQuery = None,
    thread_id: ThreadIdQuery = None,
    paging: PageQuery,
) -> Page[SentFileView]:
    """List the files that agents sent, newest first."""
    listing = paging.of(caller.tenant_id, "files", str, agent_id, thread_id)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await list_files(
            connection,
            caller.tenant_id,
            agent_id=agent_id,
            thread_id=thread_id,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda file: file.id)


@router.get("/files/{file_id}", responses=problems(404))
async def get_file(file_id: FileIdPath, caller: WorkspaceReader, state: State) -> SentFileView:
    """Get a file without its content."""
    return await files.get_file(state.services.database, caller.tenant_id, file_id)


@router.get("/files/{file_id}/content", response_class=Response, responses={**_CONTENT, **problems(404)})
async def get_file_content(file_id: FileIdPath, caller: WorkspaceReader, state: State) -> Response:
    """Get the bytes of a file."""
    file, content = await files.read_file(state.services.database, caller.tenant_id, file_id)
    return Response(
        content,
        headers={**_INERT, "content-type": file.media_type, "content-disposition": _attachment(file.name)},
    )


@router.delete("/files/{file_id}", status_code=204, responses=problems(404))
async def delete_file(file_id: FileIdPath, caller: WorkspaceCaller, state: State) -> None:
    """Delete a file for good, and its delivery if that is pending."""
    await files.delete_file(state.services.database, caller.tenant_id, file_id)


def _attachment(name: str) -> str:
    """Return a Content-Disposition that saves under a name: for old clients in ASCII, for all others as RFC 5987."""
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%;' else "_" for char in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
