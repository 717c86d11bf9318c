"""The interpreter that xdist starts for a test worker: it has one forked, and ends with it.

``python -IS xdist_interpreter.py SOCKET …`` in place of ``python …``. Standard streams are the worker's.
"""

import signal
import socket
import sys


def main() -> None:
    """Hand the streams to a process that is forked at the socket, and wait until it has ended."""
    # Ctrl-C is for the test worker, which ends by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        # The worker alone holds the pipes from here on, so that their ends are its end.
        sys.stdin.close()
        sys.stdout.close()
        connection.recv(1)


if __name__ == "__main__":
    main()
