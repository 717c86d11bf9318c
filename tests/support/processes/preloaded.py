"""Processes of a fleet, and commands, that begin with their modules imported.

One fork server imports them for all test workers. It forks a server for each, which forks the processes as that of
suspect runs does: they end with their test worker. From there on each is as one from the command line: a session, an
environment, a log and signals of its own.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock

from nova_workers.devstack.launch import die_with_parent
from nova_workers.worker.fork_server import forked_connection
from tests.support.processes.authorities import share_authorities
from tests.support.processes.become import become_module
from tests.support.processes.fork_server import accepted_connection, connect, fork_server

SHARED_SOCKET = "PRELOADED_FLEET_SOCKET"
"""The variable with the socket of the fork server that all test workers share."""

_MODULES = (
    *("nova_workers.worker.process", "nova_workers.worker.consumer", "beat.schedule", "beat.scheduler"),
    *("api.app", "nova_workers.console.server", "nova_workers.channels.run", "nova_workers.channels.telegram.serve"),
    *("celery.app.utils", "celery.fixups.django", "nova_workers.worker.pool", "billiard.pool"),
    *("celery.apps.worker", "celery.apps.beat", "uvicorn.__main__", "uvicorn.lifespan.on", "uvicorn.loops.uvloop"),
    *("uvicorn.protocols.http.httptools_impl", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    *("nova_workers.bootstrap.on_demand.claude_agent", "nova_workers.bootstrap.on_demand.programs"),
    *("nova_workers.bootstrap.on_demand.scripted", "nova_workers.domain.capabilities.rules.serving"),
    *("nova_workers.bootstrap.on_demand.anthropic", "nova_workers.bootstrap.on_demand.openai"),
    *("claude_agent_sdk", "genai_prices.data", "httpcore2", "jsonschema", "valkey.asyncio"),
    *("nova_workers.cli.app", "nova_workers.cli.talk.send", "nova_workers.cli.talk.chat"),
    *("nova_workers.cli.records.runs", "nova_workers.cli.orchestrations.orchestrate"),
    *("nova_workers.cli.orchestrations.commands", "nova_workers.cli.talk.chat_input", "nova_workers.channels.pipe"),
    *("nova_workers.cli.acp.command",),
)
"""What these processes import sooner or later, except the modules that read the environment."""

_NO_MODULES = b"[]"
"""What the server of a test process is to import: nothing more than the one for all has."""


@dataclass(frozen=True, slots=True)
class _Command:
    """``python -m MODULE ARGUMENT…``."""

    module: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    streams: tuple[str, str, str]
    cwd: Path


class PreloadedProcess:
    """A process that runs ``python -m MODULE ARGUMENT…`` in a session of its own, with the needed part of `Popen`.

    Args:
        module: A program.
        arguments: Its arguments.
        env: Its whole environment.
        streams: The files of its stdin, stdout and stderr, which `stream_of` names.
        cwd: Where it begins.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], *, env: Mapping[str, str], streams: tuple[str, str, str], cwd: Path
    ) -> None:
        self._connection, its = Pipe()
        with its:
            socket.send_fds(_server(), [_NO_MODULES], [its.fileno()])
        self._connection.send(_Command(module, tuple(arguments), dict(env), streams, cwd))
        self.pid: int = self._connection.recv()
        self._code: int | None = None
        self._lock = Lock()

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._exit_code(timeout_s=0.0)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until it ended, and return its exit code.

        Raises:
            TimeoutError: It did not end in time.
        """
        code = self._exit_code(timeout_s=timeout_s)
        if code is None:
            raise TimeoutError(f"the process did not end within {timeout_s} s")
        return code

    def _exit_code(self, *, timeout_s: float | None) -> int | None:
        with self._lock:
            if self._code is None and self._connection.poll(timeout_s):
                # The server writes it in a line.
                self._code = int(os.read(self._connection.fileno(), 64))
                self._connection.close()
            return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it ended."""
        self.send_signal(signal.SIGKILL)


def stream_of(given: Path | int) -> str:
    """Return the name of a file, or of a descriptor of this process, by which another process opens the same.

    Args:
        given: A log, which is made if it is missing; or a descriptor of a pipe or a terminal, or `subprocess.DEVNULL`.
    """
    if isinstance(given, Path):
        given.touch()
        return str(given)
    return os.devnull if given == subprocess.DEVNULL else f"/proc/{os.getpid()}/fd/{given}"


def preloaded_output(module: str, *arguments: str, folder: Path) -> str:
    """Run ``python -m MODULE ARGUMENT…`` to its end, and return what it wrote to both streams.

    Args:
        module: A program.
        arguments: Its arguments.
        folder: Gets its log.
    """
    log = folder / "output"
    streams = (os.devnull, stream_of(log), stream_of(log))
    code = PreloadedProcess(module, arguments, env=os.environ, streams=streams, cwd=Path.cwd()).wait()
    output = log.read_text(encoding="utf-8")
    assert code == 0, output
    return output


@contextmanager
def shared_fork_server() -> Generator[None]:
    """Run the fork server that the test workers started in this block share."""
    with fork_server(__name__, *_MODULES) as path:
        os.environ[SHARED_SOCKET] = path
        try:
            yield
        finally:
            del os.environ[SHARED_SOCKET]


@cache
def _server() -> socket.socket:
    """Return a connection to the server that forks the processes of this test process."""
    path = os.environ.get(SHARED_SOCKET)
    if path is None:
        stack = ExitStack()
        path = stack.enter_context(fork_server(__name__, *_MODULES))
        atexit.register(stack.close)
    return connect(path)


_MODES = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)


def _forked_command() -> _Command:
    """Be the server of a test process, whose connection is stdin. Return in the processes that it forks."""
    server = os.getpid()
    with Connection(forked_connection().detach()) as connection:
        die_with_parent(server)
        command: _Command = connection.recv()
        connection.send(os.getpid())
        return command


def _become(command: _Command) -> None:
    """Open the streams of the process, and become it."""
    for number, (stream, mode) in enumerate(zip(command.streams, _MODES, strict=True)):
        # As for a child of a test: a terminal does not become the one that controls the session.
        opened = os.open(stream, mode | os.O_NOCTTY)
        os.dup2(opened, number)
        os.close(opened)
    become_module(command.module, command.arguments, env=command.env, cwd=command.cwd)


def main() -> None:
    """Be the fork server of fleets, the server of one test process, and each of its processes in turn."""
    modules = sys.argv[2:]

    def prepare() -> None:
        for module in modules:
            importlib.import_module(module)
        if modules:
            importlib.import_module("tests.support.processes.start_parts").build()
        share_authorities()

    with accepted_connection(prepare) as connection:
        os.dup2(connection.fileno(), sys.stdin.fileno())
    _become(_forked_command())


if __name__ == "__main__":
    main()
