"""Gives up what a command must not have: capabilities, the user root, limits."""

import ctypes
import os
import resource
import struct

from nova_workers.sandbox_launcher.kernel import Buffer, call, prctl
from nova_workers.sandbox_launcher.numbers import number

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 4, 24, 38, 47, 4
_VERSION_3 = 0x2008_0522
_NUMBERS = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_RAWIO": 17,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
_MOST = 64
_PROCESSES = 4096
"""The limit of a user: a bomb of processes ends before the machine does, and builds with many do not."""
_KINDS = {
    # Counts what is writable, and not the gigabytes of addresses that engines of scripts only reserve.
    "memory": resource.RLIMIT_DATA,
    "file-size": resource.RLIMIT_FSIZE,
    "open-files": resource.RLIMIT_NOFILE,
}
_FIRST_TO_END = b"1000"


def become(uid: int) -> None:
    """Become another user, with no groups but its own. Raises OSError."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_bounds(names: list[str] | None) -> None:
    """Let no program bring capabilities again; None is all of them."""
    wanted = range(_MOST) if names is None else [_NUMBERS[name] for name in names]
    for capability in wanted:
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            # The kernel knows no more of them. Or this process may not drop them from the bounds: then no program
            # brings any, as new privileges are forbidden.
            break


def drop_capabilities(names: list[str] | None) -> None:
    """Drop capabilities that this process has; None is all of them. Raises OSError."""
    prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    kept = 0 if names is None else ~sum(1 << _NUMBERS[name] for name in names)
    head, data = _buffer(struct.pack("=Ii", _VERSION_3, 0)), _buffer(bytes(24))
    call(number("capget"), head, data)
    # Effective, permitted and inheritable; the low halves of all before the high ones.
    held = struct.unpack("=6I", data.raw)
    left = [value & (kept if place < 3 else kept >> 32) & 0xFFFF_FFFF for place, value in enumerate(held)]
    call(number("capset"), head, _buffer(struct.pack("=6I", *left)))


def forbid_new_privileges() -> None:
    """Let no program that this process executes have more rights than it. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_DUMPABLE, 0)


def limit(bounds: dict[str, int]) -> None:
    """Bound what the command may take of the machine. If memory runs short, the kernel ends it first.

    Args:
        bounds: ``memory``, ``file-size`` and ``open-files``.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, wanted in ((resource.RLIMIT_NPROC, _PROCESSES), *((_KINDS[name], bounds[name]) for name in bounds)):
        _, most = resource.getrlimit(kind)
        bound = wanted if most == resource.RLIM_INFINITY else min(most, wanted)
        resource.setrlimit(kind, (bound, bound))
    try:
        # In bytes: the files of Python may be out of reach by now.
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(_FIRST_TO_END)
    except OSError:
        # A worker that is to end first itself has lowered nothing, and the walls stand without it.
        return


def join_cgroup(path: str) -> None:
    """Move into a cgroup. Raises OSError."""
    with open(f"{path}/cgroup.procs", "wb", buffering=0) as file:
        file.write(b"0")


def _buffer(content: bytes) -> Buffer:
    return ctypes.create_string_buffer(content, len(content))
