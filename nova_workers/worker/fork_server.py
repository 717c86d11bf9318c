"""A fork server: a process that has imported what its children need, and forks one for each request.

A Python process takes seconds to import the worker, and a fork of one that has done so takes milliseconds. The server
has one thread, and makes no event loop and no connection to a server, so a child inherits none. Its client, which
starts it, is `nova_workers.domain.runs.rules.suspects.ForkServer`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Generator
from typing import Final

import orjson

from nova_workers.base.program import exclude_from_collections, import_sparingly

MOST_BYTES: Final = 64 * 1024
"""The limit of a request."""
_RESTORED: Final = (signal.SIGTERM, signal.SIGCHLD)


def forked_connection() -> socket.socket:
    """Be a fork server, whose requests come over the socket that is the standard input.

    A request is a datagram with the names of modules to import first, as a JSON list, and one end of the child's
    connection. Over that, the server sends the child's exit code in a line, or ends it if it could not fork.

    Returns:
        The connection, in a child that leads a session of its own. The server never returns: it exits when its client
        closes the socket or ends. Its children, which read the end of their own connections, are not ended by it.
    """
    requests = socket.socket(fileno=_take_stdin())
    ends, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, _ignore)
    # What ends all processes of a group or a container asks children to drain, whose ends this process reports.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests, ends], [], [])
        if ends in ready:
            ends.recv(MOST_BYTES)
            for pid, status in _ended():
                _report(children.pop(pid), os.waitstatus_to_exitcode(status))
        if requests not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 1)
        if not request:
            sys.exit()
        connection = socket.socket(fileno=descriptors[0])
        connection.set_inheritable(False)
        _import(orjson.loads(request))
        try:
            pid = os.fork()
        except OSError:
            connection.close()
            continue
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in _RESTORED:
                signal.signal(number, signal.SIG_DFL)
            for inherited in (requests, ends, wakeup, *children.values()):
                inherited.close()
            os.setsid()
            return connection
        children[pid] = connection


def _import(modules: list[str]) -> None:
    missing = [name for name in modules if name not in sys.modules]
    for name in missing:
        import_sparingly(name)
        # The child imports it again, and reports why it cannot.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if missing or not gc.get_freeze_count():
        # A child's collections would copy every page of the modules.
        exclude_from_collections()


def _ended() -> Generator[tuple[int, int]]:
    """Yield the ids and the statuses of children that ended."""
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            yield end


def _report(connection: socket.socket, code: int) -> None:
    # The client may be gone.
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % code)


def _ignore(*_: object) -> None:
    """Do nothing: the wakeup descriptor is read. A signal without a handler writes nothing to it."""


def _take_stdin() -> int:
    """Return the standard input under a number that other programs do not inherit; its own has nothing then."""
    taken = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return taken
