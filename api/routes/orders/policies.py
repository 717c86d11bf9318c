"""``/v1/work-order-policies``: what work orders are bound by, kept in versions."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyPut, PolicyView

from ...auth import AgentsCaller, AgentsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import PolicyIdPath
from ...state import State

router = APIRouter(prefix="/v1/work-order-policies", tags=["work orders"], route_class=StrictRoute)

Version = Annotated[str | None, Query(description="An earlier version.", max_length=64)]


@router.get("", responses=problems())
async def list_order_policies(caller: AgentsReader, state: State) -> Page[PolicyInfo]:
    """List the policies that apply, by id, in one page: built-in ones and the tenant's own."""
    return Page(items=await state.services.order_policies.list(caller.tenant_id))


@router.get("/{policy_id}", responses=problems(404, 422))
async def get_order_policy(
    policy_id: PolicyIdPath, caller: AgentsReader, state: State, version: Version = None
) -> PolicyView:
    """Get the policy that applies, or an earlier version of it."""
    return await state.services.order_policies.get(caller.tenant_id, policy_id, version=version)


@router.put("/{policy_id}", responses=problems(409, body=True))
async def put_order_policy(policy_id: PolicyIdPath, body: PolicyPut, caller: AgentsCaller, state: State) -> PolicyView:
    """Store a policy as its newest version. With an error nothing is stored, and `errors` has each."""
    return await state.services.order_policies.put(caller.tenant_id, policy_id, body.document)


@router.delete("/{policy_id}", status_code=204, responses=problems(404, 422))
async def delete_order_policy(policy_id: PolicyIdPath, caller: AgentsCaller, state: State) -> None:
    """Delete the tenant's policy with its versions. A built-in one with its id applies again."""
    await state.services.order_policies.delete(caller.tenant_id, policy_id)


@router.get("/{policy_id}/versions", responses=problems(400, 404, 422))
async def list_order_policy_versions(
    policy_id: PolicyIdPath, caller: AgentsReader, state: State, paging: PageQuery
) -> Page[PolicyInfo]:
    """List the tenant's versions of a policy, newest first, without their documents."""
    listing = paging.of(caller.tenant_id, "work_order_policies", int, policy_id)
    rows = await state.services.order_policies.versions(
        caller.tenant_id, policy_id, before=listing.key, limit=listing.rows
    )
    return listing.page(rows, lambda row: row.number)
