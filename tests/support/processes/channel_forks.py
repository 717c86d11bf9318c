"""Channel processes that start at once: forks of one process that has imported the channel.

The library of Telegram takes 3 s of CPU to import. A fork is a process like any other: SIGKILL ends it without cleanup.

    with ChannelForks() as forks:
        process = forks.start(["telegram"], env, log)
        process.kill()
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from nova_workers.devstack.process import ProcessSpec

__all__ = ["ChannelForks", "ForkedChannel"]

ROOT = Path(__file__).resolve().parents[3]


class ForkedChannel:
    """One process of a channel.

    Attributes:
        log: The file of its output.
    """

    def __init__(self, pid: int, log: Path) -> None:
        self.log = log
        self._pid = pid
        self._ended = os.pidfd_open(pid)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return bool(select.select([self._ended], [], [], 0)[0])

    def kill(self) -> None:
        """Kill the process and wait for its end, as a lost machine would: without a message or cleanup."""
        if not self.has_ended:
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)
            select.select([self._ended], [], [])

    def terminate(self) -> None:
        """Ask it to end, and return at once."""
        if not self.has_ended:
            signal.pidfd_send_signal(self._ended, signal.SIGTERM)


class ChannelForks:
    """Starts channels. Use it as a context manager; at its end all of them are killed."""

    def __enter__(self) -> Self:
        spec = ProcessSpec("forks", (sys.executable, "-m", "tests.support.processes.forking_channels"))
        self._parent = subprocess.Popen(
            spec.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parent.kill()
        self._parent.communicate()

    def start(self, arguments: list[str], env: Mapping[str, str], log: Path) -> ForkedChannel:
        """Start a channel as `python -m nova_workers.channels` with these arguments and variables does."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        log.touch()
        request = {"arguments": arguments, "env": {**os.environ, **env}, "log": str(log)}
        self._parent.stdin.write(json.dumps(request).encode() + b"\n")
        self._parent.stdin.flush()
        return ForkedChannel(int(self._parent.stdout.readline()), log)
