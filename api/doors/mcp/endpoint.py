"""``/mcp``: the server over streamable HTTP."""

from urllib.parse import urlsplit

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from nova_workers.base.config import Settings
from nova_workers.base.errors import Forbidden, InvalidInput

from ...boundary import header_of
from ...errors import MalformedRequest, problem_response
from ...json_body import parse_json
from ...state import ApiState
from .protocol import PATH
from .server import build_server

_SHOWN_CHARS = 200


class McpEndpoint:
    """An ASGI application. Every request is complete in itself, also those of versions with a handshake."""

    def __init__(self) -> None:
        self._server = build_server()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        state: ApiState = scope["app"].state.nova
        settings = state.services.settings
        origin = header_of(scope, b"origin").decode("latin-1")
        if origin and not _is_allowed(scope, origin, settings):
            error = Forbidden(
                f"Pages of {origin[:_SHOWN_CHARS]!r} may not use this server. "
                "Its operator can add the origin to NOVA_API__CORS_ORIGINS."
            )
            await problem_response(error, instance=PATH)(scope, receive, send)
            return
        if scope["method"] != "POST":
            # There are no sessions to end, and no stream but a request's own.
            await Response(status_code=405, headers={"allow": "POST"})(scope, receive, send)
            return
        try:
            # The SDK's parser takes values that cannot be stored.
            body = await Request(scope, receive).body()
            parse_json(body)
        except (MalformedRequest, InvalidInput) as error:
            await problem_response(error, instance=PATH)(scope, receive, send)
            return
        # One a request: it then keeps nothing, and what it starts belongs to the request and its caller.
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=settings.api.max_body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, _again(body, receive), send)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives a body that was read, and then what comes after it."""
    parts = iter([body])

    async def give() -> Message:
        found = next(parts, None)
        return await receive() if found is None else {"type": "http.request", "body": found, "more_body": False}

    return give


def _is_allowed(scope: Scope, origin: str, settings: Settings) -> bool:
    """Return whether an origin is the server's own, whose name was checked, or one that its operator named."""
    if origin in settings.api.cors_origins:
        return True
    place = urlsplit(origin).netloc.lower()
    return place != "" and place == header_of(scope, b"host").decode("latin-1").lower()


ROUTES = (Route(PATH, endpoint=McpEndpoint(), methods=["POST", "GET", "DELETE"]),)
