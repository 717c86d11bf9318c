"""Run as a script between a supervisor and its child: tie the child's life to its parent's, then exec it.

``python -I launch.py --parent PID --death-signal N [--user UID:GID [--override-access]] -- program args…``

A `preexec_fn` could do the same, but it runs Python between fork and exec in a process that has threads,
which may deadlock. This program imports the standard library only, so it costs about 15 ms.
"""

import argparse
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_EXIT_NO_PARENT = 3


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _become(uid: int, gid: int, *, override_access: bool) -> None:
    """Drop root privileges. With `override_access` keep the one capability that lets root read and write any path."""
    libc = ctypes.CDLL(None, use_errno=True)
    if override_access:
        # The programs of Postgres check themselves by access(2), which counts capabilities of a user other than root
        # only with this bit. Without the right to set it, at least data is found.
        if libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0:
            _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if override_access:
        bit = 1 << _CAP_DAC_OVERRIDE
        header = _CapHeader(_CAPABILITY_VERSION_3, 0)
        data = (_CapData * 2)(_CapData(bit, bit, bit), _CapData(0, 0, 0))
        _check(libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")
        raised = libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)
        _check(raised, "prctl(PR_CAP_AMBIENT_RAISE)")


def die_with_parent(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Ask the kernel for `death_signal` when the parent dies, however it dies. Linux only."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        _check(libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have died before the kernel was asked.
    if os.getppid() != parent:
        sys.exit(_EXIT_NO_PARENT)


def main(arguments: list[str]) -> None:
    """Apply the options and exec the program; never returns."""
    parser = argparse.ArgumentParser(prog="launch")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--death-signal", type=int, default=int(signal.SIGKILL))
    parser.add_argument("--user")
    parser.add_argument("--override-access", action="store_true")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(arguments)
    if options.user:
        uid, gid = options.user.split(":")
        _become(int(uid), int(gid), override_access=options.override_access)
    # After the change of user: the kernel forgets the death signal when credentials change.
    die_with_parent(options.parent, options.death_signal)
    os.execvp(options.program[0], options.program)  # noqa: S606 - replacing this process is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
