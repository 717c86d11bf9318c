"""The specification of a child process, as data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class OsUser:
    """The account that a child runs as.

    Attributes:
        override_access: Keep the capability to read and write any path, where the account could not even
            reach the child's files. Linux only.
    """

    uid: int
    gid: int
    override_access: bool = False


@dataclass(frozen=True)
class ProcessSpec:
    """How to run one child, know that it is ready, and stop it.

    Attributes:
        name: The prefix of its log lines.
        argv: Program and arguments; no shell.
        env: Variables set on top of the inherited ones.
        inherited: Those of the parent's variables that it gets; None: all.
        prepare: Called before each start, such as to remove what the process before left.
        ready: Returns whether the child serves; polled after each start. None: ready once started.
        ready_timeout_s: A child that is not ready by then is stopped and started again.
        stop_signal: Requests a clean end.
        stop_timeout_s: After that, SIGKILL to its whole process group.
        death_signal: What the kernel sends it when the parent dies without stopping it. By default SIGKILL: the
            protocol recovers its work.
        user: The account to run as; None keeps the parent's.
        optional: The other processes run on without it. It is started again however often it fails.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    inherited: Mapping[str, str] | None = None
    prepare: Callable[[], None] | None = None
    ready: Callable[[], Awaitable[bool]] | None = None
    ready_timeout_s: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL
    user: OsUser | None = None
    optional: bool = False

    def command(self) -> list[str]:
        """Return the whole command line, for a child of this very process."""
        shim = [sys.executable, "-I", str(_LAUNCH), "--parent", str(os.getpid())]
        shim += ["--death-signal", str(int(self.death_signal))]
        if self.user is not None:
            shim += ["--user", f"{self.user.uid}:{self.user.gid}"]
            if self.user.override_access:
                shim.append("--override-access")
        return [*shim, "--", *self.argv]

    def environment(self) -> dict[str, str]:
        """Return the child's whole environment."""
        return {**(os.environ if self.inherited is None else self.inherited), **self.env}
