"""Signing in and out, and the theme."""

from contextlib import suppress
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nova_workers.base.errors import Forbidden, NotFound, TenantChoice, TooManyRequests, Unauthenticated, Unavailable
from nova_workers.base.http_server.addresses import address_group, client_address
from nova_workers.console.forms import Form, read_form
from nova_workers.console.guard import SESSION_COOKIE, is_own_path
from nova_workers.console.navigation import PageModule
from nova_workers.console.rendering import THEME_COOKIE, THEMES, is_secure, render, see_other
from nova_workers.console.sessions import Session
from nova_workers.console.single_sign_on import ATTEMPT_COOKIE, ATTEMPT_S, CALLBACK, SingleSignOn
from nova_workers.console.state import client_of, client_with, client_without_key, session_of, state_of
from nova_workers.contracts.http.keys import SignIn, tenants_of

_YEAR_S = 31_536_000
_MAX_SIGN_IN_BYTES = 16 * 1024
"""The limit of a request that anyone may send."""


_NO_LINK = "This login link was used already, or is older than 15 minutes. Make another with `nova console --login`."


async def show(request: Request) -> Response:
    """Show the form; or sign in by a one-time login, the only GET that changes anything."""
    token = request.query_params.get("token")
    if token is None:
        return _page(request, Form(), _back(request.query_params.get("next")))
    state = state_of(request)
    try:
        with state.sign_ins.trying(_group(request)):
            if state.login_key is not None:
                # The link is spent last: while the API does not answer, it can be opened again.
                response = await _signed_in(request, state.login_key, _back(request.query_params.get("next")))
                if state.links.use(token):
                    return response
            raise Unauthenticated(_NO_LINK)
    except TooManyRequests as error:
        return _refused_for_now(request, error)
    except Unauthenticated as error:
        return _page(request, Form(problem=error.message), "/", status=403)


async def sign_in(request: Request) -> Response:
    """Check a key at the API, and start a session."""
    form = await read_form(request)
    back = _back(form.given("next"))
    key = form.given("key")
    if key is None:
        return _page(request, Form(errors={"key": "Enter an API key."}), back, status=422)
    try:
        with state_of(request).sign_ins.trying(_group(request)):
            return await _signed_in(request, key, back)
    except TooManyRequests as error:
        return _refused_for_now(request, error)
    except Unauthenticated as error:
        # The key that was typed is not sent back to the page.
        return _page(request, Form(errors={"key": error.message}), back, status=403)


async def begin_single_sign_on(request: Request) -> Response:
    """Send the browser to the provider, with a cookie that its answer is compared with."""
    single_sign_on = _provider(request)
    try:
        address, attempt = await single_sign_on.begin(
            _origin(request), _back(request.query_params.get("next")), request.query_params.get("tenant") or None
        )
    except Unavailable as error:
        return _page(request, Form(problem=str(error)), "/", status=503)
    response = RedirectResponse(address, status_code=303)
    # Lax: the provider's page sends the browser back here.
    response.set_cookie(
        ATTEMPT_COOKIE,
        attempt,
        max_age=ATTEMPT_S,
        path="/login",
        httponly=True,
        samesite="lax",
        secure=is_secure(request),
    )
    return response


async def finish_single_sign_on(request: Request) -> Response:
    """Start a session with what the provider sent the browser back with."""
    single_sign_on, state = _provider(request), state_of(request)
    cookie, back = request.cookies.get(ATTEMPT_COOKIE), "/"
    try:
        with state.sign_ins.trying(_group(request)):
            answer = await single_sign_on.finish(_origin(request), request.query_params, cookie)
            back = _back(answer.back)
            who = await client_without_key(request).sign_in_person(
                answer.id_token,
                nonce=answer.nonce,
                idle_s=int(state.settings.idle_s),
                tenant_id=answer.tenant_id,
            )
    except TooManyRequests as error:
        return _refused_for_now(request, error)
    except TenantChoice as error:
        # Each choice begins at the provider again, which knows the person by now: no token waits for it here.
        tenants = tenants_of(error)
        response = render(request, "choose_tenant.html", tenants=tenants, back=back, provider=single_sign_on.name)
    except (Unauthenticated, Forbidden) as error:
        response = _page(request, Form(problem=error.message), "/", status=403)
    except Unavailable as error:
        return _page(request, Form(problem=str(error)), "/", status=503)
    else:
        response = _with_session(request, who.key, who, back)
    response.delete_cookie(ATTEMPT_COOKIE, path="/login", httponly=True, samesite="lax")
    return response


async def sign_out(request: Request) -> Response:
    """End the session, at the API too: a copy of the cookie is worth nothing then, at any process of the console."""
    session = session_of(request)
    if session is not None and session.id is not None:
        # The session may have ended before, or with its key.
        with suppress(Unauthenticated, NotFound):
            await client_of(request).sign_out(session.id)
    response = see_other(request, "/login", flash="You are signed out.")
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


async def set_theme(request: Request) -> Response:
    """Set the colours of this browser."""
    form = await read_form(request)
    theme = form.value("theme")
    response = see_other(request, _back(form.given("next")))
    if theme in THEMES:
        response.set_cookie(
            THEME_COOKIE, theme, max_age=_YEAR_S, httponly=True, samesite="strict", secure=is_secure(request)
        )
    return response


async def _signed_in(request: Request, key: str, back: str) -> Response:
    """Begin a session at the API, and return the way back with its cookie.

    Raises:
        Unauthenticated: The API does not know the key.
    """
    state = state_of(request)
    client = client_with(request, key)
    try:
        who = await client.sign_in(idle_s=int(state.settings.idle_s))
    except NotFound:
        # An API of the release before, for as long as an upgrade takes.
        who = SignIn(**(await client.whoami()).model_dump())
    return _with_session(request, key, who, back)


def _with_session(request: Request, key: str, who: SignIn, back: str) -> Response:
    """Return the way back with a session's cookie."""
    state = state_of(request)
    response = see_other(request, back)
    response.set_cookie(
        SESSION_COOKIE,
        state.sessions.seal(Session(key, who.tenant_id, who.tenant_name, who.session_id, who.scopes)),
        max_age=state.sessions.lifetime_s,
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
    )
    return response


def _page(request: Request, form: Form, back: str, *, status: int = 200) -> Response:
    single_sign_on = state_of(request).single_sign_on
    name = None if single_sign_on is None else single_sign_on.name
    return render(request, "sign_in.html", status=status, form=form, back=back, single_sign_on=name)


def _provider(request: Request) -> SingleSignOn:
    single_sign_on = state_of(request).single_sign_on
    if single_sign_on is None:
        raise HTTPException(404, "This console has no single sign-on.")
    return single_sign_on


def _origin(request: Request) -> str:
    """Return the console's address in the browser, as it is registered at the provider."""
    return state_of(request).settings.public_url or f"{request.url.scheme}://{request.url.netloc}"


def _group(request: Request) -> str:
    """Return the group that the limit counts as one. All clients of a Unix socket are one."""
    return address_group(client_address(request.scope) or "")


def _refused_for_now(request: Request, error: TooManyRequests) -> Response:
    """Answer a sign-in that was not tried: the console's limit, or the API's."""
    response = _page(request, Form(problem=error.message), "/", status=429)
    response.headers["retry-after"] = str(ceil(float(str(error.fields.get("retry_after_s") or 1))))
    return response


def _back(path: str | None) -> str:
    return path if path is not None and is_own_path(path) else "/"


PAGE = PageModule(
    routes=(
        Route("/login", show, methods=["GET"]),
        Route("/login", sign_in, methods=["POST"], max_body_size=_MAX_SIGN_IN_BYTES),
        Route("/login/sso", begin_single_sign_on, methods=["GET"]),
        Route(CALLBACK, finish_single_sign_on, methods=["GET"]),
        Route("/logout", sign_out, methods=["POST"]),
        Route("/theme", set_theme, methods=["POST"]),
    )
)
