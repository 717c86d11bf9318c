"""`nova login` and `nova logout`: a person's session at an API, by the fleet's provider of single sign-on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from nova_workers.base.errors import (
    ConfigurationError,
    InvalidInput,
    NotFound,
    TenantChoice,
    Unauthenticated,
    Unavailable,
)
from nova_workers.base.home import home_folder
from nova_workers.base.oidc import OidcProvider
from nova_workers.cli.command import ApiUrlOption
from nova_workers.cli.login.device_flow import DeviceCode, DeviceFlow, Sleep
from nova_workers.cli.stored_sessions import StoredSession, forget_session, read_session, write_session
from nova_workers.cli.target import client_for, find_target
from nova_workers.cli.terminal.output import Facts, JsonOption, Output, printable, stamp
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.keys import KeyIdentity, PersonSignIn, SingleSignOnView, TenantRole, tenants_of

app = typer.Typer(help="Sign in to a fleet as a person.")

_IDLE_S = 43_200


TenantOption = Annotated[
    str | None, typer.Option(metavar="ID", help="The tenant of the session, if you have roles in several.")
]

Choose = Callable[[Sequence[TenantRole]], str]


@app.command("login")
def login(tenant: TenantOption = None, json_mode: JsonOption = False, api_url: ApiUrlOption = None) -> None:
    """Sign in at the fleet's provider of single sign-on. Commands without a key then act as you.

    The provider's page is opened in any browser, also on another machine.
    """
    url = find_target(home_folder(), api_url=api_url, api_key=None, with_session=False).url
    out = Output(json_mode=json_mode)
    choose = _ask if sys.stdin.isatty() and not json_mode else None
    asyncio.run(sign_in(url, out, tenant_id=tenant, choose=choose))


@app.command("logout")
def logout(json_mode: JsonOption = False, api_url: ApiUrlOption = None) -> None:
    """End the session of `nova login`, at the API and on this machine."""
    url = find_target(home_folder(), api_url=api_url, api_key=None, with_session=False).url
    asyncio.run(sign_out(url, Output(json_mode=json_mode)))


async def sign_in(
    url: str,
    out: Output,
    *,
    tenant_id: str | None = None,
    choose: Choose | None = None,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Sign a person in at an API, and store the session.

    Args:
        tenant_id: The tenant of the session; None for a person who has roles in one only, or chooses.
        choose: Asks a person for one of several tenants; None where there is no one to ask.
        sleep: Waits between two questions to the provider.

    Raises:
        ConfigurationError: The fleet or its provider has no sign-in for command lines.
        Unauthenticated: The code was not confirmed in time.
        Forbidden: The person refused, or has no role at the fleet, or none in the tenant.
        InvalidInput: The person has roles in several tenants, and `tenant_id` names none.
        Unavailable: The API or the provider does not answer.
    """
    async with NovaClient(url, None) as client:
        token = await _id_token(await _provider(client), out, sleep)
        try:
            who = await client.sign_in_person(token, nonce=None, idle_s=_IDLE_S, tenant_id=tenant_id)
        except TenantChoice as error:
            chosen = _chosen(tenants_of(error), choose)
            who = await client.sign_in_person(token, nonce=None, idle_s=_IDLE_S, tenant_id=chosen)
        await _keep(client, url, who)
    # The answer without the key, which is in the file alone.
    out.record(KeyIdentity(**who.model_dump(exclude={"key", "session_id"})), _facts)


async def sign_out(url: str, out: Output) -> None:
    """End the stored session of an API.

    Raises:
        Unavailable: The API does not answer; the session goes on, and its file is kept.
    """
    session = read_session(url)
    if session is None:
        out.done({"url": url, "ended": False}, f"You are not signed in at {url}.")
        return
    await _end(session)
    forget_session(url)
    out.done({"url": url, "ended": True}, f"{session.name} is signed out at {url}.")


async def _provider(client: NovaClient) -> SingleSignOnView:
    try:
        provider = await client.single_sign_on()
    except NotFound as error:
        raise ConfigurationError(
            f"The fleet at {client.base_url} has no single sign-on. Use a key: --api-key or NOVA_API_KEY."
        ) from error
    if provider.client_id is None:
        raise ConfigurationError(
            f"The fleet at {client.base_url} has no single sign-on for command lines: its operator registers a client "
            f"for the device flow at {provider.name}, and names it in NOVA_OIDC__DEVICE_CLIENT_ID."
        )
    return provider


async def _id_token(provider: SingleSignOnView, out: Output, sleep: Sleep) -> str:
    flow = DeviceFlow(OidcProvider(provider.issuer), provider.client_id or "", sleep=sleep)
    code = await flow.begin(provider.scopes)
    _show(code, provider, out)
    try:
        return await flow.wait(code)
    except asyncio.CancelledError:
        out.note(f"Interrupted: no session was begun, and the code {code.user_code} ends by itself.")
        raise


def _chosen(tenants: Sequence[TenantRole], choose: Choose | None) -> str:
    """Return the id of the tenant that the person chooses."""
    if choose is None:
        named = ", ".join(f"{tenant.tenant_id} ({tenant.name}, {tenant.role})" for tenant in tenants)
        raise InvalidInput(f"You have roles in several tenants: give --tenant with one of {named}.", field="tenant")
    return choose(tenants)


def _ask(tenants: Sequence[TenantRole]) -> str:
    for number, tenant in enumerate(tenants, 1):
        typer.echo(f"{number}. {printable(tenant.name)} ({tenant.tenant_id}, {tenant.role})", err=True)
    while not 1 <= (number := typer.prompt("Number of the tenant", type=int, err=True)) <= len(tenants):
        pass
    return tenants[number - 1].tenant_id


def _show(code: DeviceCode, provider: SingleSignOnView, out: Output) -> None:
    """Write where to confirm which code to stderr: stdout has the result."""
    out.note(f"To sign in at {provider.name}, open {code.verification_uri}", style="")
    out.note(f"and enter the code {code.user_code}", style="bold")
    if code.verification_uri_complete is not None:
        out.note(f"or open {code.verification_uri_complete} and compare the code.")


async def _keep(client: NovaClient, url: str, who: PersonSignIn) -> None:
    """Store a session in place of the former one, which is ended. One that cannot be stored is ended at once."""
    session = StoredSession(
        api_url=url,
        api_key=who.key,
        session_id=who.session_id or "",
        name=who.key_name,
        tenant_id=who.tenant_id,
        expires_at=who.expires_at,
    )
    former: StoredSession | None = None
    with suppress(ConfigurationError):  # a damaged file is replaced
        former = read_session(url)
    try:
        write_session(session)
    except (OSError, ConfigurationError):
        await client.with_key(who.key).sign_out(session.session_id)
        raise
    if former is not None:
        with suppress(Unavailable):  # it ends by itself
            await _end(former)


async def _end(session: StoredSession) -> None:
    """End a session at its API, unless it has ended."""
    async with client_for(session.api_url, session.api_key, session.session_id) as client:
        with suppress(Unauthenticated, NotFound):
            await client.sign_out(session.session_id)


def _facts(who: KeyIdentity) -> Facts:
    shown: dict[str, Any] = {
        "signed in": who.key_name,
        "tenant": f"{who.tenant_id} ({who.tenant_name})",
        "role": who.role,
        "until": stamp(who.expires_at),
    }
    return shown.items()
