"""A server that forks processes from one with its modules imported: importing them anew takes seconds of CPU each time.

The server is a program that calls `accepted_connection`: it returns in a new process for each connection to the server.
Both end with the process that started the server, where the kernel can do that. That of suspect runs serves one client,
from which its children learn when to end; this one has a client for each child.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from nova_workers.base.program import exclude_from_collections
from nova_workers.devstack.launch import die_with_parent

_ROOT = Path(__file__).resolve().parents[3]
_BACKLOG = 64


@contextmanager
def fork_server(module: str, *arguments: str) -> Generator[str]:
    """Run the module as a fork server until the block ends, and give the path of its socket, which accepts at once."""
    with (
        tempfile.TemporaryDirectory(prefix="nova-fork-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        path = f"{folder}/socket"
        listener.bind(path)
        listener.listen(_BACKLOG)
        command = [sys.executable, "-m", module, str(listener.fileno()), *arguments]
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(listener.fileno(),), cwd=_ROOT
        )
        listener.close()
        try:
            yield path
        finally:
            server.kill()
            server.communicate()


def connect(path: str) -> socket.socket:
    """Connect to a fork server: it forks the process that serves this connection."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    return connection


def accepted_connection(prepare: Callable[[], object] = bool) -> socket.socket:
    """Be the fork server whose socket is the program's first argument.

    Args:
        prepare: What is left to do when the first connection comes.

    Returns:
        A connection, in a process of its own. The server ends when its stdin does, and never returns.
    """
    listener = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C is for the whole process group: this one ends when its user does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = os.getpid()
    prepared = False
    while True:
        if sys.stdin in select.select([sys.stdin, listener], [], [])[0]:
            sys.exit()
        if not prepared:
            prepare()
            exclude_from_collections()
            prepared = True
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            die_with_parent(server)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        connection.close()
