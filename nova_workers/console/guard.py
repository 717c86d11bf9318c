"""Stands before every request: refuses those of other sites, asks for a sign-in, and sets every answer's headers."""

import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_workers.base.config import ConsoleSettings
from nova_workers.base.http_server.connection_table import prove_connection
from nova_workers.console.rights import holding
from nova_workers.console.sessions import Session, Sessions

SESSION_COOKIE = "nova_console"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""No inline script, style or handler, and nothing from elsewhere: what an agent wrote cannot run or call home."""

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers then send `Origin: null` with forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""The headers of every answer."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PUBLIC = ("/login", "/healthz", "/static/", "/favicon.ico")

# A link from another site comes without the cookie, which is SameSite=Strict. This page asks again from here.
_ASK_AGAIN = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>Nova</title>'


class Guard:
    """ASGI middleware around the whole console. It never buffers an answer."""

    def __init__(self, app: ASGIApp, sessions: Sessions, settings: ConsoleSettings) -> None:
        self._app = app
        self._sessions = sessions
        self._public_url = settings.public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            # Only the lifespan: no page has a WebSocket, and a refused one is closed.
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                message["headers"] = headers.raw
            await send(message)

        refusal, session = self._refusal(scope), scope.get("console_session")
        with holding(None if session is None else session.scopes):
            await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that goes no further, else None; note its session in the scope."""
        headers, path = Headers(scope=scope), scope["path"]
        if scope["method"] not in _SAFE and not self._is_from_here(headers, scope["scheme"]):
            return PlainTextResponse(
                "Refused: this request comes from another site. Open the console's own page and try again.\n",
                status_code=403,
            )
        session = self._session(headers)
        scope["console_session"] = session
        if session is not None:
            prove_connection(scope)
            return None
        if path.startswith(_PUBLIC):
            return None
        if headers.get("nova-fragment") or scope["method"] not in _SAFE:
            return PlainTextResponse("Sign in first.\n", status_code=401)
        if headers.get("sec-fetch-site") == "cross-site":
            return HTMLResponse(_ASK_AGAIN)
        return RedirectResponse(sign_in_address(path, scope["query_string"].decode("latin-1")), status_code=303)

    def _is_from_here(self, headers: Headers, scheme: str) -> bool:
        """Return whether a browser says that our own page sent this; a request without both headers is refused, too."""
        if headers.get("sec-fetch-site") == "same-origin":
            return True
        origin = headers.get("origin")
        return origin is not None and origin == (self._public_url or f"{scheme}://{headers.get('host')}")

    def _session(self, headers: Headers) -> Session | None:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(SESSION_COOKIE)
        except CookieError:
            return None
        return None if cookie is None else self._sessions.open(cookie.value)


def sign_in_address(path: str, query: str = "") -> str:
    """Return the sign-in page's address that leads back to a page."""
    back = f"{path}?{query}" if query else path
    return "/login" if back == "/" else f"/login?next={quote(back, safe='/')}"


def is_own_path(path: str) -> bool:
    """Return whether a path is on this console, and not elsewhere, as ``//other.example`` is for browsers."""
    return re.fullmatch(r"/(?![/\\])[^\x00-\x1f\x7f]*", path) is not None
