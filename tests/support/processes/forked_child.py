"""A program of a fork server, for tests: each child does what the run id of its doorbell says.

``exit CODE`` and ``kill`` end it. Anything else is a file, to which it writes a `Report` as JSON before it waits for
the end of its connection.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from nova_workers.worker.fork_server import forked_connection

_STANDARD_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What a child has."""

    pid: int
    session: int
    """The id of its session; its own process id if it leads one."""
    server: int
    """The process id of the fork server."""
    descriptors: int
    """Open files beside its standard streams and its connection."""
    threads: int
    handles_signals: bool
    """Whether SIGTERM or SIGCHLD has another effect than in a new process."""
    modules: list[str]


def main() -> None:
    """Fork children."""
    with forked_connection() as connection:
        command = str(orjson.loads(connection.makefile("rb").readline())[0])
        if command.startswith("exit "):
            sys.exit(int(command.removeprefix("exit ")))
        if command == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        file = Path(command)
        file.with_suffix(".part").write_bytes(orjson.dumps(_report(connection.fileno())))
        file.with_suffix(".part").rename(file)
        while connection.recv(1024):
            pass


def _report(connection: int) -> Report:
    descriptors = {int(name) for name in os.listdir("/proc/self/fd")}
    handlers = {signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD)}
    return Report(
        os.getpid(),
        os.getsid(0),
        os.getppid(),
        # One of them lists the others.
        len(descriptors - {*range(_STANDARD_STREAMS), connection}) - 1,
        len(os.listdir("/proc/self/task")),
        handlers != {signal.SIG_DFL} or signal.set_wakeup_fd(-1) != -1,
        [*sys.modules],
    )


if __name__ == "__main__":
    main()
