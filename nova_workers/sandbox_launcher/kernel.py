"""System calls that Python's library does not have."""

import ctypes
import os

Buffer = ctypes.Array[ctypes.c_char]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: int | Buffer | None) -> int:
    """Make a system call.

    Raises:
        OSError: It failed.
    """
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given))


def prctl(option: int, *values: int) -> int:
    """Call ``prctl``. Raises OSError."""
    padded = (*values, 0, 0, 0, 0)[:4]
    return _checked(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones. Raises OSError."""
    _checked(_libc.unshare(flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount. Raises OSError, with the target."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def unmount(target: str, flags: int) -> None:
    """Unmount. Raises OSError, with the target."""
    _checked(_libc.umount2(os.fsencode(target), flags), target)


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
