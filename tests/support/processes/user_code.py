"""Processes of user code that begin with the kit and the MCP library imported, which takes 0.6 s of CPU each time.

`forked_python` is a program that stands for Python where a test does not ask how a process of user code starts. It
hands its streams, environment and working directory to a process that a fork server forks, ends as that ends, and takes
it along when it is killed. It serves ``-m nova_workers.sdk.serve`` alone.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from nova_workers.devstack.launch import die_with_parent
from tests.support.processes.become import become_module
from tests.support.processes.fork_server import accepted_connection, fork_server

_SHARED = "FORKED_PYTHON"
"""The variable with the program that all test workers share."""
_PROGRAM = Path(__file__).with_name("user_code_program.py")
_MODULES = ("nova_workers.sdk.loading", "nova_workers.sdk.servers", "nova_workers.sdk.protocol", "mcp.server.mcpserver")
"""What `nova_workers.sdk.serve` imports sooner or later. Not itself: it becomes the main module."""
_MOST_BYTES = 128 * 1024


@contextmanager
def shared_forked_python() -> Generator[None]:
    """Run the fork server that the test workers started in this block share."""
    with _forked_python() as program:
        os.environ[_SHARED] = program
        try:
            yield
        finally:
            del os.environ[_SHARED]


@cache
def forked_python() -> str:
    """Return the path of a program to start in place of Python."""
    shared = os.environ.get(_SHARED)
    if shared is not None:
        return shared
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_forked_python())


@contextmanager
def _forked_python() -> Generator[str]:
    with fork_server(__name__) as path:
        # Beside the socket, which it looks for there, and gone with it.
        program = Path(path).with_name("python")
        program.write_text(f"#!{sys.executable} -IS\n{_PROGRAM.read_text('utf-8')}", "utf-8")
        program.chmod(0o700)
        yield str(program)


def _import_modules() -> None:
    for module in _MODULES:
        importlib.import_module(module)


def _watch(process: int, starter: socket.socket) -> None:
    """Report the end of a process to the program that stands for it; kill the process if that program ends first."""
    ended = os.pidfd_open(process)
    if ended not in select.select([starter, ended], [], [])[0]:
        os.killpg(process, signal.SIGKILL)
        return
    _, status = os.waitpid(process, 0)
    starter.send(b"%d" % os.waitstatus_to_exitcode(status))


def main() -> None:
    """Be the fork server, the process between it and a process of user code, or that process."""
    # The server's working directory, which Python would not search with -P.
    del sys.path[0]
    starter = accepted_connection(_import_modules)
    request, streams, _, _ = socket.recv_fds(starter, _MOST_BYTES, 3)
    watcher = os.getpid()
    process = os.fork()
    if process:
        # A group of its own, with what it starts.
        os.setpgid(process, process)
        for stream in streams:
            os.close(stream)
        _watch(process, starter)
        os._exit(0)
    die_with_parent(watcher)
    starter.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    arguments, folder, environment = json.loads(request)
    module = arguments.index("-m") + 1
    become_module(arguments[module], arguments[module + 1 :], env=environment, cwd=folder)


if __name__ == "__main__":
    main()
