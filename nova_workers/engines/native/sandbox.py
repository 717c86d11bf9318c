"""Confines commands with bubblewrap."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nova_workers.errors import ConfigurationError

__all__ = ["ShellSandbox"]

_TRIAL_S = 10.0
_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Paths that the kernel lets root write even without capabilities."""
_NAME_SERVERS = "/etc/resolv.conf"


@dataclass(frozen=True, slots=True)
class ShellSandbox:
    """How commands are confined.

    A command sees a read-only system, an empty home and /tmp, and no other processes. It can write where the agent may.

    Attributes:
        program: Path of ``bwrap``.
        network: Whether commands reach the network.
        hidden: Directories that appear empty, besides /tmp, /run and the home of the worker's user.
    """

    program: str
    network: bool = True
    hidden: tuple[str, ...] = ()

    @classmethod
    def find(cls, *, network: bool, hidden: Sequence[str] = ()) -> "ShellSandbox":
        """Return this machine's sandbox after a test run. Blocks briefly.

        Raises:
            ConfigurationError: There is no ``bwrap`` on PATH, or it cannot create a sandbox on this machine.
        """
        program = shutil.which("bwrap")
        if program is None:
            raise ConfigurationError(
                "NOVA_TOOLS__SHELL_SANDBOX is 'bubblewrap', and there is no bwrap on PATH. Install bubblewrap on every "
                "worker's machine, or set it to 'off'."
            )
        sandbox = cls(program, network, tuple(hidden))
        sandbox._try()
        return sandbox

    def wrap(self, command: Sequence[str], cwd: str, writable: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in the sandbox."""
        inside = [self.program, "--unshare-all", "--die-with-parent", "--new-session"]
        # A command of a worker that runs as root would have every capability, and could unmount the hiding mounts.
        inside += ["--cap-drop", "ALL"]
        inside += ["--share-net"] if self.network else []
        inside += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for path in _KERNEL:
            inside += ["--ro-bind-try", path, path]
        for path in self._hidden():
            inside += ["--tmpfs", path]
        if self.network:
            # Often a link to a file below /run, without which DNS would not work.
            servers = os.path.realpath(_NAME_SERVERS)
            inside += ["--ro-bind-try", servers, servers]
        for path in writable:
            inside += ["--bind-try", path, path]
        return [*inside, "--chdir", cwd, "--", *command]

    def _hidden(self) -> list[str]:
        # A service user's home may be the root directory, which must not be hidden.
        folders = ("/tmp", "/run", os.path.expanduser("~"), *self.hidden)  # noqa: S108 - hidden, not used
        return [path for path in map(os.path.realpath, folders) if path != "/" and Path(path).is_dir()]

    def _try(self) -> None:
        try:
            trial = subprocess.run(  # noqa: S603 - the operator's own program, without a shell
                self.wrap(["/bin/true"], "/", ()), capture_output=True, timeout=_TRIAL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            complaint = str(error)
        else:
            if trial.returncode == 0:
                return
            complaint = trial.stderr.decode(errors="replace").strip() or f"exit code {trial.returncode}"
        raise ConfigurationError(
            f"NOVA_TOOLS__SHELL_SANDBOX is 'bubblewrap', and {self.program} cannot make a sandbox here: {complaint}. "
            "It needs user namespaces, which some kernels and most container runtimes withhold: allow them for the "
            "worker, or set it to 'off' and give the workers a container of their own."
        )
