"""What the options of a command line demand.

They mean what they do for bubblewrap, but for these:

- ``--guard``: Landlock, the filter of system calls and limits, beside or in place of namespaces;
- ``--landlock-only``: no namespaces. With ``--guard`` what the mounts demand is held by Landlock as far as it goes;
  without, nothing but the environment and the memory of other processes is closed;
- ``--become UID``: run the command as another user;
- ``--in-front``: no walls of ours, as the command is bubblewrap: only Landlock's scopes, limits, and what follows;
- ``--limit NAME=VALUE``: ``memory`` and ``file-size`` in bytes, ``open-files``;
- ``--cgroup PATH``: the command is in this cgroup;
- ``--listen FD``: in a network of its own. A socket that listens at its proxy port is sent over this Unix socket.
"""

from collections.abc import Iterator, Sequence

NEW_MOUNTS, NEW_CGROUPS, NEW_NAMES = 0x0002_0000, 0x0200_0000, 0x0400_0000
NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000

_SEPARATE = {
    "--unshare-all": NEW_CGROUPS | NEW_NAMES | NEW_IPC | NEW_PROCESSES | NEW_NETWORK,
    "--unshare-cgroup-try": NEW_CGROUPS,
    "--unshare-ipc": NEW_IPC,
    "--unshare-net": NEW_NETWORK,
    "--unshare-pid": NEW_PROCESSES,
    "--unshare-uts": NEW_NAMES,
}
_WITH_SOURCE = ("--ro-bind", "--ro-bind-try", "--bind", "--bind-try", "--dev-bind", "--bind-fd", "--ro-bind-fd")
_WITHOUT_SOURCE = ("--tmpfs", "--dir", "--dev", "--proc", "--remount-ro")
_FOLDER_MODE = 0o755


class Operation:
    """One step of building the root.

    Attributes:
        kind: ``bind``, ``ro-bind``, ``dev-bind``, ``tmpfs``, ``dir``, ``dev``, ``proc`` or ``remount-ro``.
        source: What is bound.
        target: Where.
        optional: Whether a source that is not there is left out.
        mode: Permissions of a new directory.
        size: Of a tmpfs, in bytes; 0 is the kernel's own bound, half of the memory.
        descriptor: What the source must still be; -1 is anything.
    """

    __slots__ = ("descriptor", "kind", "mode", "optional", "size", "source", "target")

    def __init__(self, option: str, target: str, source: str = "", mode: int = _FOLDER_MODE, size: int = 0) -> None:
        name = option.removeprefix("--")
        self.optional = name.endswith("-try")
        self.kind = name.removesuffix("-try").removesuffix("-fd")
        self.descriptor = int(source) if name.endswith("-fd") else -1
        self.source = target if self.descriptor >= 0 else source
        self.target = target
        self.mode = mode
        self.size = size


class Walls:
    """The options, and the command."""

    def __init__(self, words: Sequence[str]) -> None:
        """Read a command line.

        Raises:
            ValueError: It has an option that is unknown.
        """
        self.separate = NEW_MOUNTS
        self.guard = self.landlock_only = self.new_session = self.drop_all = self.in_front = False
        self.limits: dict[str, int] = {}
        self.cgroup: str | None = None
        self.listener = -1
        self.uid: int | None = None
        self.dropped: list[str] = []
        self.operations: list[Operation] = []
        self.cwd = "/"
        ahead = iter(words)
        mode, size = _FOLDER_MODE, 0
        for word in ahead:
            if word == "--":
                break
            if word in _WITH_SOURCE:
                source = next(ahead)
                self.operations.append(Operation(word, next(ahead), source))
            elif word in _WITHOUT_SOURCE:
                self.operations.append(Operation(word, next(ahead), mode=mode, size=size))
                mode, size = _FOLDER_MODE, 0
            elif word == "--perms":
                mode = int(next(ahead), 8)
            elif word == "--size":
                size = int(next(ahead))
            else:
                self._take(word, ahead)
        self.command = list(ahead)

    @property
    def network(self) -> bool:
        """Whether the command reaches the machine's network."""
        return not self.separate & NEW_NETWORK

    def _take(self, word: str, ahead: Iterator[str]) -> None:
        if word in _SEPARATE:
            self.separate |= _SEPARATE[word]
        elif word == "--share-net":
            self.separate &= ~NEW_NETWORK
        elif word == "--chdir":
            self.cwd = next(ahead)
        elif word == "--become":
            self.uid = int(next(ahead))
        elif word == "--cap-drop":
            capability = next(ahead)
            self.drop_all = self.drop_all or capability == "ALL"
            self.dropped.append(capability)
        elif word in ("--limit", "--cgroup", "--listen"):
            self._take_bound(word, next(ahead))
        elif word in ("--guard", "--in-front", "--landlock-only", "--new-session"):
            setattr(self, word.removeprefix("--").replace("-", "_"), True)
        elif word != "--die-with-parent":
            raise ValueError(f"unknown option {word!r}")

    def _take_bound(self, word: str, value: str) -> None:
        if word == "--limit":
            name, _, most = value.partition("=")
            self.limits[name] = int(most)
        elif word == "--cgroup":
            self.cgroup = value
        else:
            self.listener = int(value)
