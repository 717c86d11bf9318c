"""The network of a namespace of its own."""

import _socket
import fcntl
import struct

__all__ = ["open_loopback"]

_SET_FLAGS = 0x8914
_UP_AND_RUNNING = 0x41


def open_loopback() -> None:
    """Bring up the loopback device, through which programs of a command reach one another. Raises OSError."""
    socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(socket.fileno(), _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
    finally:
        socket.close()
