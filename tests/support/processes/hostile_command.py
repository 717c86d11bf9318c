"""A command that tries what its sandbox must refuse.

It prints a line of JSON: the error of each attempt, null if it succeeded.

    python3 hostile_command.py PID SOCKET

It runs inside the sandbox, so it imports nothing of ours.

- PID: a process outside, of the same user.
- SOCKET: the path of a Unix socket that a program outside listens at. The same name is taken in the abstract namespace.
"""

import ctypes
import errno
import json
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable

_BY_MACHINE = {
    "x86_64": {
        "ptrace": 101,
        "process_vm_readv": 310,
        "mount": 165,
        "umount2": 166,
        "unshare": 272,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "chroot": 161,
    },
    "aarch64": {
        "ptrace": 117,
        "process_vm_readv": 270,
        "mount": 40,
        "umount2": 39,
        "unshare": 97,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "chroot": 51,
    },
}
_CALLS = {**_BY_MACHINE[platform.machine()], "io_uring_setup": 425, "clone3": 435, "pidfd_getfd": 438, "fsopen": 430}
_NEW_USERS, _ATTACH, _BIND, _VSOCK = 0x1000_0000, 16, 0x1000, 40
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> None:
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    if _libc.syscall(ctypes.c_long(_CALLS[name]), *given) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def _open(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


def main() -> None:
    """Try everything, and print what came of it."""
    pid, path = int(sys.argv[1]), sys.argv[2]
    attempts: dict[str, Callable[[], object]] = {
        "signal": lambda: os.kill(pid, 0),
        "limits": lambda: resource.prlimit(pid, resource.RLIMIT_CORE),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 5),
        "ptrace": lambda: _call("ptrace", _ATTACH, pid, 0, 0),
        "memory": lambda: open(f"/proc/{pid}/mem", "rb"),
        "environment": lambda: open(f"/proc/{pid}/environ", "rb"),
        "root": lambda: os.listdir(f"/proc/{pid}/root/"),
        "socket": lambda: _connect(path),
        "mount": lambda: _call("mount", b"/", b"/", None, _BIND, None),
        "umount2": lambda: _call("umount2", b"/tmp", 2),
        "chroot": lambda: _call("chroot", b"/"),
        "raw": lambda: _open(socket.AF_INET, socket.SOCK_RAW),
        "packet": lambda: _open(socket.AF_PACKET, socket.SOCK_RAW),
        "abstract socket": lambda: _connect(f"\0{path}"),
        "unshare": lambda: _call("unshare", _NEW_USERS),
        "clone3": lambda: _call("clone3", None, 0),
        "pidfd_getfd": lambda: _call("pidfd_getfd", -1, 0, 0),
        "process_vm_readv": lambda: _call("process_vm_readv", os.getpid(), None, 0, None, 0, 0),
        "fsopen": lambda: _call("fsopen", b"tmpfs", 0),
        "keyctl": lambda: _call("keyctl", 0, -3, 0),
        "bpf": lambda: _call("bpf", 0, None, 0),
        "perf_event_open": lambda: _call("perf_event_open", None, 0, -1, -1, 0),
        "userfaultfd": lambda: _call("userfaultfd", 1),
        "io_uring": lambda: _call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
        "hypervisor": lambda: _open(_VSOCK, socket.SOCK_STREAM),
    }
    found: dict[str, str | None] = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno or 0, "unknown")
        else:
            found[name] = None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
