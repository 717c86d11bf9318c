"""The network of a namespace of its own."""

import _socket
import fcntl
import struct

_SET_FLAGS = 0x8914
_UP_AND_RUNNING = 0x41


_PROXY_PORT = 3128
_WAITING = 64


def send_listener(descriptor: int) -> None:
    """Listen at the proxy's port of this network, and send the socket over a Unix socket, which is closed.

    The process that has it answers connections from inside this network, from its own.

    Raises:
        OSError: It cannot be sent.
    """
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", _PROXY_PORT))
        listener.listen(_WAITING)
        channel = _socket.socket(fileno=descriptor)
        try:
            rights = struct.pack("i", listener.fileno())
            channel.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        finally:
            channel.close()
    finally:
        listener.close()


def open_loopback() -> None:
    """Bring up the loopback device, through which programs of a command reach one another. Raises OSError."""
    socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(socket.fileno(), _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
    finally:
        socket.close()
