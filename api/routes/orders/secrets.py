"""``/v1/work-order-secrets``: secrets of the keys of work orders. A value is shown once."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import OrderSecretCreate, OrderSecretCreated, OrderSecretView

from ...auth import SecretsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import OrderSecretIdPath
from ...state import State

router = APIRouter(prefix="/v1/work-order-secrets", tags=["work orders"], route_class=StrictRoute)


@router.get("", responses=problems())
async def list_order_secrets(caller: SecretsCaller, state: State) -> Page[OrderSecretView]:
    """List the usable secrets, newest first, in one page, without their values."""
    return Page(items=await state.services.order_secrets.list(caller.tenant_id))


@router.post("", status_code=201, responses=problems(409, body=True))
async def create_order_secret(body: OrderSecretCreate, caller: SecretsCaller, state: State) -> OrderSecretCreated:
    """Make the tenant's newest secret. Keys of earlier ones are accepted for `previous_valid_hours`."""
    return await state.services.order_secrets.create(caller.tenant_id, body)


@router.delete("/{secret_id}", status_code=204, responses=problems(404))
async def delete_order_secret(secret_id: OrderSecretIdPath, caller: SecretsCaller, state: State) -> None:
    """Delete a secret: orders with its keys are refused at once."""
    await state.services.order_secrets.delete(caller.tenant_id, secret_id)
