"""Connects standard input and output to a Unix socket: the MCP server that a vendor's program starts.

    python -I -S -B relay.py SOCKET

A script that imports nothing of ours. It only relays bytes: the worker at the other end has the tools, and decides
about each call.
"""

import os
import select
import socket
import sys

_CHUNK_BYTES = 1 << 16


def main(path: str) -> None:
    """Relay until either end closes."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        while True:
            ready, _, _ = select.select([0, link], [], [])
            if link in ready:
                answer = link.recv(_CHUNK_BYTES)
                if not answer:
                    return
                _write_all(answer)
            if 0 in ready:
                request = os.read(0, _CHUNK_BYTES)
                if not request:
                    return
                link.sendall(request)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
