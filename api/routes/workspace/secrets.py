"""``/v1/secrets``: secrets that agents may use. Values are written and never returned."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.secrets import SecretPut, SecretRotation, SecretView
from nova_workers.ledger.visibility import see_all_tenants

from ...auth import AnyCaller, SecretsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import SecretNamePath
from ...state import State

router = APIRouter(prefix="/v1", tags=["secrets"], route_class=StrictRoute)


@router.post("/fleet/secrets/rotate", responses=problems(409))
async def rotate_secrets(caller: AnyCaller, state: State) -> SecretRotation:
    """Encrypt again those secrets of all tenants that are not under the current master key; for operators.

    At most 10,000 per call; it may be repeated at any time.
    """
    caller.need("operator")
    see_all_tenants()
    secrets = await state.services.secrets.rotate()
    # Secrets that sign webhooks or go with push notifications, and those of work orders, are under the same key.
    services = state.services
    others = [await each.reseal() for each in (services.webhooks, services.pushes, services.order_secrets)]
    parts = (secrets, *others)
    return SecretRotation(
        key_id=secrets.key_id,
        rotated=sum(part.rotated for part in parts),
        remaining=sum(part.remaining for part in parts),
        unreadable=sum(part.unreadable for part in parts),
    )


@router.get("/secrets", responses=problems(400, 422))
async def list_secrets(caller: SecretsCaller, state: State, paging: PageQuery) -> Page[SecretView]:
    """List secrets, by name, without their values."""
    listing = paging.of(caller.tenant_id, "secrets", str)
    rows = await state.services.secrets.list(caller.tenant_id, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda secret: secret.name)


@router.put("/secrets/{name}", responses=problems(409, body=True))
async def put_secret(name: SecretNamePath, body: SecretPut, caller: SecretsCaller, state: State) -> SecretView:
    """Create a secret, or replace its value. An equal value is only encrypted again."""
    return await state.services.secrets.put(
        caller.tenant_id, name, body.value, by="person", description=body.description
    )


@router.delete("/secrets/{name}", status_code=204, responses=problems(404, 422))
async def delete_secret(name: SecretNamePath, caller: SecretsCaller, state: State) -> None:
    """Delete a secret."""
    await state.services.secrets.delete(caller.tenant_id, name)
