"""Ports for the servers of one fleet."""

import errno
import socket
import sys
from contextlib import ExitStack


class Ports:
    """The ports that one `nova up` has chosen.

    A server binds its port seconds after it was chosen. Until then a second `nova up` must not choose it too: on Linux
    a name in the abstract namespace of Unix sockets, which belongs to the same network as the port, claims it. The
    kernel gives it back when the process ends. Elsewhere ports are only tried.
    """

    def __init__(self) -> None:
        self._claims = ExitStack()

    def claim(self, host: str, port: int) -> bool:
        """Claim a port; return False if a server listens there or another fleet has claimed it."""
        with _socket(host) as probe:
            # As servers do: a port whose last connection has just ended counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
        return self._claim_name(host, port)

    def claim_any(self, host: str) -> int:
        """Claim a port that is free, and return it."""
        while True:
            with _socket(host) as probe:
                probe.bind((host, 0))
                port = int(probe.getsockname()[1])
            if self._claim_name(host, port):
                return port

    def release(self) -> None:
        """Give all claims back, once the servers have ended."""
        self._claims.close()

    def _claim_name(self, host: str, port: int) -> bool:
        if sys.platform != "linux":
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0nova-workers-port-{host}-{port}")
        except OSError as error:
            claim.close()
            # Another error: such names are not to be had here, and the port has been tried.
            return error.errno != errno.EADDRINUSE
        self._claims.enter_context(claim)
        return True


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
