"""``/v1/webhooks``: URLs that receive events."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import DeliveryView
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch, WebhookRotate, WebhookSecret, WebhookView
from nova_workers.domain.webhooks.sql import endpoints as ledger

from ...auth import WorkspaceCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import WebhookIdPath
from ...state import State

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=StrictRoute)


@router.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_webhook(body: WebhookCreate, caller: WorkspaceCaller, state: State) -> WebhookSecret:
    """Create a webhook. Its secret is in this answer only."""
    return await state.services.webhooks.create(caller.tenant_id, body, may_audit=caller.may("keys"))


@router.get("", responses=problems(400, 422))
async def list_webhooks(caller: WorkspaceCaller, state: State, paging: PageQuery) -> Page[WebhookView]:
    """List webhooks, newest first."""
    listing = paging.of(caller.tenant_id, "webhooks", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_webhooks(connection, caller.tenant_id, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda webhook: webhook.id)


@router.get("/{webhook_id}", responses=problems(404))
async def get_webhook(webhook_id: WebhookIdPath, caller: WorkspaceCaller, state: State) -> WebhookView:
    """Get a webhook."""
    async with state.services.database.connection() as connection:
        return await ledger.get_webhook(connection, caller.tenant_id, webhook_id)


@router.patch("/{webhook_id}", responses=problems(404, 410, body=True))
async def patch_webhook(
    webhook_id: WebhookIdPath, body: WebhookPatch, caller: WorkspaceCaller, state: State
) -> WebhookView:
    """Change the given fields. Null clears agent_id. Enabling a webhook resets its failures."""
    return await state.services.webhooks.patch(caller.tenant_id, webhook_id, body, may_audit=caller.may("keys"))


@router.delete("/{webhook_id}", status_code=204, responses=problems(404))
async def delete_webhook(webhook_id: WebhookIdPath, caller: WorkspaceCaller, state: State) -> None:
    """Delete a webhook. Its pending deliveries fail."""
    await state.services.webhooks.delete(caller.tenant_id, webhook_id, may_audit=caller.may("keys"))


@router.post("/{webhook_id}/rotate", responses=problems(404, 409, body=True))
async def rotate_secret(
    webhook_id: WebhookIdPath, body: WebhookRotate, caller: WorkspaceCaller, state: State
) -> WebhookSecret:
    """Replace the secret. The new one is in this answer only; the old one also signs for `grace_s`."""
    return await state.services.webhooks.rotate(
        caller.tenant_id, webhook_id, grace_s=body.grace_s, may_audit=caller.may("keys")
    )


@router.post("/{webhook_id}/test", status_code=202, responses=problems(404, 409))
async def test_webhook(webhook_id: WebhookIdPath, caller: WorkspaceCaller, state: State) -> DeliveryView:
    """Send a webhook a test delivery without content. The returned delivery will have the outcome."""
    return await state.services.webhooks.test(caller.tenant_id, webhook_id)
