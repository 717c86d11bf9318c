"""What every request of one console process shares, and the signed-in client of one request."""

from dataclasses import dataclass

from jinja2 import Environment
from starlette.requests import HTTPConnection, Request

from nova_workers.base.clock import Clock
from nova_workers.base.config import ConsoleSettings
from nova_workers.base.errors import Unauthenticated
from nova_workers.base.http_server.addresses import client_address
from nova_workers.client.client import NovaClient
from nova_workers.console.assets import Assets
from nova_workers.console.fleet_watch import FleetWatch
from nova_workers.console.navigation import NavEntry
from nova_workers.console.sessions import LoginLinks, Session, Sessions
from nova_workers.console.sign_in_limit import SignInLimit
from nova_workers.console.single_sign_on import SingleSignOn


@dataclass(frozen=True, slots=True)
class ConsoleState:
    """Built once by the application.

    Attributes:
        client: Without a key; `client_of` adds the one of the request's session, on the same connections.
        watch: Whether the fleet answers.
        login_key: The API key that a one-time login signs in with; None turns one-time logins off.
        single_sign_on: The provider at which people sign in; None without one.
    """

    settings: ConsoleSettings
    client: NovaClient
    watch: FleetWatch
    sessions: Sessions
    links: LoginLinks
    login_key: str | None
    single_sign_on: SingleSignOn | None
    sign_ins: SignInLimit
    templates: Environment
    assets: Assets
    nav: tuple[NavEntry, ...]
    clock: Clock


def state_of(request: HTTPConnection) -> ConsoleState:
    """Return the state of the application that serves the request."""
    return request.app.state.console


def session_of(request: HTTPConnection) -> Session | None:
    """Return the session that the guard found; None on public pages."""
    return request.scope.get("console_session")


def client_with(request: Request, api_key: str, session_id: str | None = None) -> NovaClient:
    """Return the API's client with a key, which names the person's address to the API.

    Raises:
        Unauthenticated: No key has this form.
    """
    return state_of(request).client.with_key(
        api_key, forwarded_for=client_address(request.scope), session_id=session_id
    )


def client_without_key(request: Request) -> NovaClient:
    """Return the API's client without a key, which names the person's address to the API."""
    return state_of(request).client.with_key(None, forwarded_for=client_address(request.scope))


def client_of(request: Request) -> NovaClient:
    """Return the API's client with the signed-in person's key. It costs no connection; do not close it.

    Raises:
        Unauthenticated: The request has no session.
    """
    session = session_of(request)
    if session is None:
        raise Unauthenticated("Sign in first.")
    return client_with(request, session.api_key, session.id)
