"""A client that disconnects before its response: how a route notices, and how it is counted."""

from typing import Final

from starlette.types import Receive

__all__ = ["CLIENT_GONE", "until_gone"]

CLIENT_GONE: Final = 499
"""The status of such a request, only in logs and metrics, as in nginx: nothing is sent."""


async def until_gone(receive: Receive) -> None:
    """Return once the client has disconnected. Reads what is left of its body."""
    while (await receive())["type"] != "http.disconnect":
        pass
