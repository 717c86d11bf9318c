"""``/v1/keys``: API keys of the caller's tenant; ``/v1/whoami``: the key of the request."""

from fastapi import APIRouter, Request

from nova_workers.base.http_server.addresses import client_address
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.keys import (
    KeyCreate,
    KeyCreated,
    KeyIdentity,
    KeyRotate,
    KeyView,
    PersonSignIn,
    PersonSignInCreate,
    SignIn,
    SignInCreate,
    SignInView,
    SingleSignOnView,
)
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.keys.rules import giving as rules
from nova_workers.domain.keys.sql import keys as ledger
from nova_workers.domain.keys.sql import people, sign_ins

from ...auth import AnyCaller, KeysCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import KeyIdPath, SessionIdPath
from ...state import State

router = APIRouter(tags=["keys"], route_class=StrictRoute)


@router.post("/v1/keys", status_code=201, responses=problems(body=True))
async def create_key(body: KeyCreate, caller: KeysCaller, state: State) -> KeyCreated:
    """Create a key. Its secret is in this answer only. A key can only give scopes and networks that it has."""
    services = state.services
    return await rules.make_key(
        services.database, caller.tenant_id, body, rights=caller.key_rights, now=services.clock.now()
    )


@router.get("/v1/keys", responses=problems(400, 422))
async def list_keys(caller: KeysCaller, state: State, paging: PageQuery) -> Page[KeyView]:
    """List keys, newest first, without their secrets."""
    listing = paging.of(caller.tenant_id, "keys", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_keys(connection, caller.tenant_id, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda key: key.id)


@router.post("/v1/keys/{key_id}/rotate", responses=problems(404, 409, body=True))
async def rotate_key(key_id: KeyIdPath, body: KeyRotate, caller: KeysCaller, state: State) -> KeyCreated:
    """Replace a key by a successor with the same rights. The key itself ends after an overlap.

    The successor's secret is in this answer only. Until the successor was used, rotating the key again gives it another
    secret.
    """
    made = await rules.rotate_key(state.services.database, caller.tenant_id, key_id, body, rights=caller.key_rights)
    state.keys.forget(key_id)
    return made


@router.delete("/v1/keys/{key_id}", status_code=204, responses=problems(404))
async def revoke_key(key_id: KeyIdPath, caller: KeysCaller, state: State) -> None:
    """Revoke a key. Every API process refuses it within seconds; revoking again changes nothing."""
    async with state.services.database.connection() as connection:
        await ledger.revoke_key(connection, caller.tenant_id, key_id)
    state.keys.forget(key_id)


@router.post("/v1/sign-ins", responses=problems(body=True))
async def begin_sign_in(body: SignInCreate, caller: AnyCaller, state: State) -> SignIn:
    """Begin a session of a person who signed in with this key, as at a console. It is recorded in the audit log."""
    async with state.services.database.transaction() as connection:
        identity = await ledger.identify_key(connection, caller.tenant_id, caller.key_id)
        await record_act(connection, "key.signed_in", "key", caller.key_id, {"prefix": identity.prefix})
        session_id = await sign_ins.begin_sign_in(connection, caller.tenant_id, caller.key_id, idle_s=body.idle_s)
    return SignIn(**identity.model_dump(), session_id=session_id)


@router.get("/sso", responses=problems(404))
async def get_single_sign_on(state: State) -> SingleSignOnView:
    """Get the fleet's provider of single sign-on, and its client for command lines. It needs no key."""
    return state.services.people.provider()


@router.post("/sso/sign-ins", responses=problems(401, 403, 404, 409, 503, body=True))
async def sign_in_person(body: PersonSignInCreate, request: Request, state: State) -> PersonSignIn:
    """Begin a session of a person by an ID token of the fleet's provider of single sign-on. It needs no key.

    The person's tenants and roles follow from the operator's rules. With several tenants `tenant_id` says which one; a
    409 names them. The session's key is in this answer only.
    """
    return await state.services.people.sign_in(body, address=client_address(request.scope))


@router.get("/v1/sign-ins", responses=problems(400, 422))
async def list_sign_ins(caller: KeysCaller, state: State, paging: PageQuery) -> Page[SignInView]:
    """List the sessions of people that go on, newest first."""
    listing = paging.of(caller.tenant_id, "sign_ins", str)
    async with state.services.database.connection() as connection:
        rows = await sign_ins.list_sign_ins(connection, caller.tenant_id, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda session: session.id)


@router.delete("/v1/sign-ins/{session_id}", status_code=204, responses=problems(404))
async def end_sign_in(session_id: SessionIdPath, caller: AnyCaller, state: State) -> None:
    """End a session of this key; with the scope `keys`, one of any key. API processes refuse it within seconds."""
    own = None if caller.may("keys") else caller.key_id
    async with state.services.database.transaction() as connection:
        key_id = await sign_ins.end_sign_in(connection, caller.tenant_id, session_id, key_id=own)
        await people.delete_key_of_session(connection, caller.tenant_id, key_id)
        await record_act(connection, "key.signed_out", "key", key_id, {"session_id": session_id})
    state.sign_ins.forget(key_id, session_id)
    state.keys.forget(key_id)


@router.get("/v1/whoami", responses=problems())
async def get_identity(caller: AnyCaller, state: State) -> KeyIdentity:
    """Get the key of this request: its name, scopes and expiry, and its tenant."""
    async with state.services.database.connection() as connection:
        return await ledger.identify_key(connection, caller.tenant_id, caller.key_id)
