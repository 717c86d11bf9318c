"""Refuses requests for hosts that are not this server's."""

from collections.abc import Callable, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nova_workers.base.errors import NovaError
from nova_workers.base.http_server.allowed_hosts import AllowedHosts
from nova_workers.base.http_server.errors import UnknownHost

_SHOWN_CHARS = 200


class HostCheck:
    """ASGI middleware: a page of a name whose DNS points here (DNS rebinding) can neither read nor send anything."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str], answer: Callable[[NovaError], Response]) -> None:
        """Take the names, and what makes the answer to a refused request."""
        self._app = app
        self._allowed = AllowedHosts(names)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"host" and (host := value.decode("latin-1")) not in self._allowed:
                    await self._answer(_unknown(host))(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _unknown(host: str) -> UnknownHost:
    return UnknownHost(
        f"The request is for the host {host[:_SHOWN_CHARS]!r}, which is no name of this server. Use its address, "
        "or let the operator add the name to NOVA_ALLOWED_HOSTS."
    )
