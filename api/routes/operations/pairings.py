"""``/v1/pairings``: people of channels who may write by a code that an operator confirmed."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.pairings import PairingAnswer, PairingConfirm, PairingRequest, PairingView
from nova_workers.domain.keys.sql import pairings as ledger

from ...auth import ChannelsCaller, KeysCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import PairingIdPath
from ...state import State

router = APIRouter(prefix="/v1/pairings", tags=["pairings"], route_class=StrictRoute)


@router.post("", responses=problems(body=True))
async def ask_pairing(body: PairingRequest, caller: ChannelsCaller, state: State) -> PairingAnswer:
    """Ask whether a person of a channel may write. If not, and `ask` is true, the person gets a code for an hour."""
    async with state.services.database.connection() as connection:
        return await ledger.ask_pairing(connection, caller.tenant_id, body)


@router.post("/confirm", responses=problems(404, body=True))
async def confirm_pairing(body: PairingConfirm, caller: KeysCaller, state: State) -> PairingView:
    """Let the person with this code write to the channel. Confirming it again changes nothing."""
    async with state.services.database.connection() as connection:
        return await ledger.confirm_pairing(connection, caller.tenant_id, body.code)


@router.get("", responses=problems(400, 422))
async def list_pairings(caller: KeysCaller, state: State, paging: PageQuery) -> Page[PairingView]:
    """List the people who may write by a code, and those who ask to, newest first."""
    listing = paging.of(caller.tenant_id, "pairings", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_pairings(connection, caller.tenant_id, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda pairing: pairing.id)


@router.delete("/{pairing_id}", status_code=204, responses=problems(404))
async def end_pairing(pairing_id: PairingIdPath, caller: KeysCaller, state: State) -> None:
    """Take the right to write from a person, or refuse what it asks for. The channel heeds it within a minute."""
    async with state.services.database.connection() as connection:
        await ledger.end_pairing(connection, caller.tenant_id, pairing_id)
