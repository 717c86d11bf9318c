"""What a command in the sandbox reaches of the network: nothing, a proxy of ours, or all that the machine does.

With the proxy a command has a network of its own, in which nothing answers but one port. The socket that listens there
is made inside by our launcher and sent out to the worker, which answers: so no process stands between.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

_PROXY: Final = "http://127.0.0.1:3128"
_OWN: Final = "localhost,127.0.0.1,::1"
PROXY_VARIABLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _OWN),
    # Node's own requests ignore the others without it.
    "NODE_USE_ENV_PROXY": "1",
}
"""What leads the programs of a command to the proxy."""


class Passage(Protocol):
    """The way out of one command."""

    @property
    def refusals(self) -> Sequence[str]:
        """What it was refused so far: which host, by which rule."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class EgressGate(Protocol):
    """Answers connections from inside sandboxes."""

    def open(self, channel: socket.socket) -> Passage:
        """Answer connections to the socket that comes over a channel, until the passage is closed.

        The channel is the gate's to close. Called on the event loop.
        """
        ...
