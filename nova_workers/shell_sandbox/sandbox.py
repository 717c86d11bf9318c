"""Confines programs: with bubblewrap, or where it is missing with `nova_workers.sandbox_launcher`.

There are three strengths:

- `ShellSandbox.wrap`: for every tenant, where the operator set NOVA_TOOLS__SHELL_SANDBOX.
- `ShellSandbox.enclosed`: for a tenant with ceilings. Directories of other tenants are hidden too, what is writable is
  bound by open directories (a path could be exchanged for a link in between), and where the worker is root the command
  runs as another user.
- `ShellSandbox.hide`: for the operator's own tenant. Only NOVA_HOME is hidden, and with it the master keys.

What confines is found once, by trial, in the order of `SandboxKind` (`nova_workers.shell_sandbox.finding`). All kinds
take the same options.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.contracts.agents import Egress, Enclosure
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.sandbox_launcher.landlock import SCOPES_SINCE
from nova_workers.sandbox_launcher.landlock import version as landlock_version
from nova_workers.shell_sandbox.bounds import CommandBounds
from nova_workers.shell_sandbox.cgroups import CommandCgroups
from nova_workers.shell_sandbox.egress import PROXY_VARIABLES, EgressGate, Passage
from nova_workers.shell_sandbox.owners import SANDBOX_UID
from nova_workers.shell_sandbox.programs import SandboxKind, call_filter, launcher

_BECOME = (
    *("setpriv", "--reuid", str(SANDBOX_UID), "--regid", str(SANDBOX_UID), "--clear-groups"),
    *("--inh-caps=-all", "--no-new-privs", "--"),
)
"""The beginning of a command line that becomes another user, which bubblewrap does not."""
_TO_ENTER = (("CAP_DAC_READ_SEARCH", 2), ("CAP_DAC_OVERRIDE", 1))
"""Capabilities, and their numbers, with either of which bubblewrap's root enters a directory that is the other user's
alone, below ones that are root's alone. They end with root."""
_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Paths that the kernel lets root write even without capabilities."""
_NAME_SERVERS = "/etc/resolv.conf"
_TO_UNHIDE = (
    *("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"),
    *("CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_BPF"),
)
"""Capabilities with which a command of root could unmount what hides a directory, read another process, or go around
both."""


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A command line in the sandbox.

    Attributes:
        command: The command line.
        descriptors: What it must inherit.
        environment: Variables that it needs beside others.
        passage: Its way out through the proxy; None without.
        no_network: Why it has no network, where its tenant may use the proxy.
    """

    command: list[str]
    descriptors: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    passage: Passage | None = None
    no_network: str | None = None


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """Stands for the sandbox on a worker that has none; `why` names the reasons and the missing features."""

    why: str = "No sandbox is set up."


@dataclass(frozen=True, slots=True)
class ShellSandbox:
    """How programs are confined.

    A confined program sees a read-only system, an empty home and /tmp, and no other processes. It can write where the
    agent may.

    Attributes:
        program: The words that start what confines.
        network: Whether commands reach the network.
        hidden: Directories that appear empty, besides /tmp, /run and the home of the worker's user.
        private: The fleet's own files.
        kind: What confines.
        trial: What a command reached in it on this machine; None before the trial.
        bounds: What a command may use up.
        cgroups: Makes a cgroup for each command; None bounds each process by itself.
        gate: Answers for the proxy; None on a worker that has none.
        launcher: The words that start our launcher, which also stands in front of bubblewrap.
    """

    program: tuple[str, ...]
    network: bool = True
    hidden: tuple[str, ...] = ()
    private: PrivateFiles | None = None
    kind: SandboxKind = "bubblewrap"
    trial: SandboxTrial | None = None
    bounds: CommandBounds = field(default_factory=CommandBounds)
    cgroups: CommandCgroups | None = None
    gate: EgressGate | None = None
    launcher: tuple[str, ...] = field(default_factory=launcher)

    @property
    def landlock(self) -> int:
        """The version of Landlock that stands beside the sandbox or is it; 0 without."""
        known = landlock_version()
        return 0 if self.kind == "bubblewrap" and known < SCOPES_SINCE else known

    @contextmanager
    def wrap(self, command: Sequence[str], cwd: str, writable: Sequence[str]) -> Generator[Enclosed]:
        """Yield the command line that runs `command` in the sandbox; its descriptors close at the end."""
        # A command of a worker that runs as root would have every capability, and could unmount the hiding mounts.
        inside = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        inside += ["--share-net"] if self.network else []
        inside += self._system(network=self.network)
        for path in writable:
            inside += ["--bind-try", path, path]
        with ExitStack() as stack:
            start, descriptors = self._guarded(stack, network=self.network)
            yield Enclosed([*start, *inside, "--chdir", cwd, "--", *command], descriptors)

    @contextmanager
    def enclosed(
        self,
        command: Sequence[str],
        enclosure: Enclosure,
        *,
        cwd: str,
        writable: Sequence[str] = (),
        read_only: Sequence[str] = (),
        own: Sequence[str] = (),
        readable: Sequence[str] = (),
        egress: Egress | None = None,
        other_user: bool = True,
    ) -> Generator[Enclosed]:
        """Yield the command line that runs `command` for a tenant with ceilings.

        At the end its descriptors close, and so does its way out: it must not end before the command does, if that
        may use the proxy.

        Args:
            enclosure: Nothing outside of it is bound.
            cwd: The working directory.
            writable: Directories of the agent that the command can write to.
            read_only: Directories of the agent that it can only read. With any, the writable ones lie in them.
            own: Directories of the turn itself, which no agent can exchange.
            readable: Files and directories that are visible although a directory around them is hidden.
            egress: What it reaches of the network; None is what its tenant may.
            other_user: Whether it runs as another user if the worker is root.

        Raises:
            ValueError: A directory is outside of the enclosure.
            OSError: A directory cannot be opened.
        """
        egress = egress or enclosure.egress
        reason = self._why_no_proxy() if egress == "proxy" else None
        egress = "none" if reason else egress
        # In front of bubblewrap a network is made that has the proxy, which bubblewrap then leaves alone.
        shared = egress == "all" or (egress == "proxy" and self.kind == "bubblewrap")
        becomes = other_user and os.geteuid() == 0
        inside = [*_separate(userspace=not becomes, network=shared), "--die-with-parent"]
        inside += ["--cap-drop", "ALL"]
        become: tuple[str, ...] = ()
        if becomes and self.kind == "bubblewrap":
            inside += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", *_capability_to_enter()]
            become = _BECOME
        elif becomes:
            inside += ["--become", str(SANDBOX_UID)]
        inside += self._system(network=egress == "all")
        for path in readable:
            inside += [*self._passable(Path(path)), "--ro-bind-try", path, path]
        for path in own:
            inside += ["--bind", path, path]
        confinement = Confinement(("/",), within=enclosure.roots, beneath=read_only, private=self.private)
        # What is bound later lies over what was bound before.
        bound = {**dict.fromkeys(read_only, "--ro-bind-fd"), **dict.fromkeys(writable, "--bind-fd")}
        with ExitStack() as stack:
            channel, passage = _open(self.gate if egress == "proxy" else None, stack)
            start, descriptors = self._guarded(stack, network=egress == "all", channel=channel)
            for path, option in sorted(bound.items(), key=lambda each: each[1], reverse=True):
                target = confinement.resolve(path)
                if option == "--ro-bind-fd" and any(Path(folder).is_relative_to(target) for folder in self._hidden()):
                    # It is visible as it is, but for what is hidden in it.
                    continue
                directory = confinement.open_place(target)
                stack.callback(os.close, directory)
                descriptors += (directory,)
                inside += self._passable(target)
                # The program compares what it bound with what is open here, and stops if it was exchanged.
                inside += [option, str(directory), str(target)]
            line = [*start, *inside, "--chdir", os.path.realpath(cwd), "--", *become, *command]
            yield Enclosed(line, descriptors, PROXY_VARIABLES if passage else {}, passage, reason)

    def hide(self, command: Sequence[str], cwd: str, *, readable: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs `command` as it is, but for NOVA_HOME, which appears empty.

        Agents' directories in it stay, and directories that are `readable`, but not writable. Other processes of the
        worker's user stay visible, and closed. With Landlock alone NOVA_HOME is not hidden: it permits directories
        whole, and cannot leave out one within others.
        """
        private = None if self.private is None else self.private.resolved()
        inside = [*self.program, "--die-with-parent"]
        if self.kind == "landlock":
            inside += ["--landlock-only"]
        else:
            inside += ["--dev-bind", "/", "/"]
        if self.kind != "landlock" and private is not None and private.home.is_dir():
            inside += [
                "--size",
                str(self.bounds.tmpfs_bytes),
                "--tmpfs",
                str(private.home),
                "--bind-try",
                str(private.workspace),
                str(private.workspace),
            ]
            shown = [path for path in readable if private.has(Path(path).resolve())]
            for path in shown:
                inside += ["--ro-bind-try", path, path]
            # The worker's own directory, in which a server without one starts, may be what is hidden.
            cwd = "/" if private.has(Path(cwd).resolve()) and cwd not in shown else cwd
        for capability in _TO_UNHIDE:
            inside += ["--cap-drop", capability]
        # Such as the program that the kernel runs, as root and outside, when a process crashes.
        for path in (*_KERNEL, "/sys"):
            inside += ["--ro-bind-try", path, path]
        return [*inside, "--chdir", cwd, "--", *command]

    def _why_no_proxy(self) -> str | None:
        if self.trial is not None and "proxy" not in self.trial.egress:
            return (
                f"the sandbox of this worker ({self.kind}) cannot have a network of its own, in which the proxy would "
                "answer: it needs network namespaces"
            )
        return None if self.gate is not None else "this worker has no proxy"

    def _system(self, *, network: bool) -> list[str]:
        size = str(self.bounds.tmpfs_bytes)
        inside = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # The rest of /dev has no size of its own.
        inside += ["--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        for path in _KERNEL:
            inside += ["--ro-bind-try", path, path]
        for path in self._hidden():
            inside += ["--perms", "1777", "--size", size, "--tmpfs", path]
        if network:
            # Often a link to a file below /run, without which DNS would not work.
            servers = os.path.realpath(_NAME_SERVERS)
            inside += ["--ro-bind-try", servers, servers]
        return inside

    def _passable(self, target: Path) -> list[str]:
        """Return the arguments that let another user pass the directories above a target, where they are new."""
        hidden = [Path(folder) for folder in self._hidden()]
        new = [
            path for path in target.parents if any(path != folder and path.is_relative_to(folder) for folder in hidden)
        ]
        return [word for path in reversed(new) for word in ("--perms", "0755", "--dir", str(path))]

    def _hidden(self) -> list[str]:
        # A service user's home may be the root directory, which must not be hidden.
        folders = ("/tmp", "/run", os.path.expanduser("~"), *self.hidden)  # noqa: S108 - hidden, not used
        return [path for path in map(os.path.realpath, folders) if path != "/" and Path(path).is_dir()]

    def _guarded(
        self, stack: ExitStack, *, network: bool, channel: int | None = None
    ) -> tuple[list[str], tuple[int, ...]]:
        """Return the start of a command line, with what stands beside the mounts; `stack` closes its descriptors."""
        beside = [*self.bounds.options()]
        descriptors: tuple[int, ...] = ()
        if channel is not None:
            beside += ["--listen", str(channel)]
            descriptors = (channel,)
        if self.cgroups is not None:
            cgroup = self.cgroups.make()
            stack.callback(self.cgroups.remove, cgroup)
            beside += ["--cgroup", str(cgroup)]
        if self.kind != "bubblewrap":
            alone = ("--landlock-only",) if self.kind == "landlock" else ()
            return [*self.program, "--guard", *alone, *beside], descriptors
        start = [*self.launcher, "--in-front", *beside, "--", *self.program]
        # Without scopes a command would reach abstract sockets of the machine, whose network it has.
        code = call_filter(unix=not network or landlock_version() >= SCOPES_SINCE)
        if code is None:
            return start, descriptors
        file = os.memfd_create("filter")
        stack.callback(os.close, file)
        os.write(file, code)
        os.lseek(file, 0, os.SEEK_SET)
        return [*start, "--seccomp", str(file)], (*descriptors, file)


def _capability_to_enter() -> list[str]:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    held = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return next((["--cap-add", name] for name, number in _TO_ENTER if held >> number & 1), [])


def _open(gate: EgressGate | None, stack: ExitStack) -> tuple[int | None, Passage | None]:
    """Return the end of a channel for the launcher, and the passage of the socket that comes over it."""
    if gate is None:
        return None, None
    ours, theirs = socket.socketpair()
    stack.callback(theirs.close)
    passage = gate.open(ours)
    stack.callback(passage.close)
    return theirs.fileno(), passage


def _separate(*, userspace: bool, network: bool) -> list[str]:
    if userspace:
        return ["--unshare-all", *(["--share-net"] if network else [])]
    # Without a user namespace, in which no other user exists.
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    return apart if network else [*apart, "--unshare-net"]
