"""Builds the console."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.http_server.addresses import ForwardedClients, TrustedProxies
from nova_workers.base.http_server.connections import ConnectionLimits
from nova_workers.base.http_server.hosts import HostCheck
from nova_workers.base.stopping import stop_tasks
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.console import news
from nova_workers.console.assets import Assets
from nova_workers.console.fleet_watch import PATIENCE_S, FleetWatch, is_ready
from nova_workers.console.guard import Guard
from nova_workers.console.names import NamedPages
from nova_workers.console.pages import PAGES
from nova_workers.console.problems import handlers, refusal
from nova_workers.console.rendering import build_templates
from nova_workers.console.sessions import LoginLinks, Sessions, read_secret
from nova_workers.console.sign_in_limit import SignInLimit
from nova_workers.console.single_sign_on import SingleSignOn
from nova_workers.console.state import ConsoleState

_MAX_BODY_BYTES = 40 * 1024 * 1024
"""The limit of a request with its files. The API's own bounds are usually lower, and its messages say which."""

_RETRY = Retry(attempts=3)
"""A person sees a page that says what is wrong sooner than a program does."""


def build_console(
    settings: Settings, *, api_url: str, login_key: str | None = None, clock: Clock | None = None
) -> Starlette:
    """Return the console of one API.

    Args:
        api_url: The API's address as this process reaches it.
        login_key: The API key that one-time logins sign in with; None turns them off.

    Raises:
        ConfigurationError: The console's secret cannot be read or made.
    """
    clock = clock or SystemClock()
    secret = read_secret(settings.console, settings.home)
    sessions = Sessions(secret, lifetime_s=settings.console.session_s)
    assets, nav = Assets(), tuple(entry for page in PAGES for entry in page.nav)
    client = NovaClient(api_url, None, timeout_s=settings.console.timeout_s, retry=_RETRY)
    asking = NovaClient(api_url, None, timeout_s=PATIENCE_S, retry=Retry(attempts=1))

    own = settings.console.trusted_proxies
    proxies = TrustedProxies(settings.api.trusted_proxies if own is None else own)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, ConnectionLimits]]:
        resolving = asyncio.create_task(proxies.run())
        try:
            async with client, asking:
                yield {"connections": ConnectionLimits(settings.api, proxies, answer=refusal)}
        finally:
            await stop_tasks([resolving])

    app = Starlette(
        routes=[
            Route("/healthz", _healthz),
            Route("/changes", news.follow),
            Route("/favicon.ico", _favicon),
            Mount(assets.prefix, assets.app()),
            *(route for page in PAGES for route in page.routes),
        ],
        middleware=[
            Middleware(ForwardedClients, proxies=proxies),
            Middleware(HostCheck, names=_names(settings), answer=refusal),
            Middleware(Guard, sessions=sessions, settings=settings.console),
            Middleware(NamedPages),
            Middleware(RequestBodyLimitMiddleware, max_body_size=_MAX_BODY_BYTES),
            # Never of event streams. Pages contain no secret that a compressed size could reveal.
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5),
        ],
        exception_handlers=handlers(),
        lifespan=lifespan,
    )
    app.state.console = ConsoleState(
        settings=settings.console,
        client=client,
        watch=FleetWatch(partial(is_ready, asking)),
        sessions=sessions,
        links=LoginLinks(secret, settings.home, clock),
        login_key=login_key,
        single_sign_on=None if settings.oidc.issuer is None else SingleSignOn(settings.oidc, sessions),
        sign_ins=SignInLimit(settings.console.failed_sign_ins_per_minute, clock),
        templates=build_templates(assets, clock),
        assets=assets,
        nav=nav,
        clock=clock,
    )
    return app


def _names(settings: Settings) -> list[str]:
    """Return the names in browsers' address bars."""
    public = urlsplit(settings.console.public_url or "").hostname
    return [*settings.allowed_hosts, settings.console.host, *([public] if public else [])]


async def _healthz(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _favicon(request: Request) -> Response:
    return RedirectResponse(request.app.state.console.assets.url("icon.svg"))
