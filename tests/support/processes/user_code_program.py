"""The program of `forked_python`: it has a process forked at the socket beside it, and ends as that ends."""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Hand streams, arguments, directory and environment to the process, and wait until it has ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.path.join(os.path.dirname(sys.argv[0]), "socket"))
        request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(connection, [request], [0, 1, 2])
        # The process alone holds the pipes from here on, so that their ends are its end.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        code = int(connection.recv(16) or -signal.SIGKILL)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
