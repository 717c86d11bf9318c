"""Options of TCP connections to servers."""

from __future__ import annotations

import socket
from typing import Final

TCP_OPTIONS: Final = {
    getattr(socket, name): value
    for name, value in {
        "TCP_KEEPIDLE": 15,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        # For bytes that were sent; in ms.
        "TCP_USER_TIMEOUT": 10_000,
    }.items()
    if hasattr(socket, name)
}
"""The options by which the kernel closes a connection whose other end is silent: after 10 s if it was sent something,
else after half a minute. Where the platform knows them, and together with SO_KEEPALIVE."""
