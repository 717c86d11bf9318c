"""Builds a root of mounts in a new mount namespace, and moves into it."""

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

from nova_workers.sandbox_launcher.kernel import Buffer, call, mount, unmount
from nova_workers.sandbox_launcher.numbers import number
from nova_workers.sandbox_launcher.walls import Operation

_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x4_0000
_DETACH = 2
_SET_READ_ONLY, _SET_NOSUID, _SET_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_BASE, _OLD, _NEW = "/tmp", "/oldroot", "/newroot"  # noqa: S108 - the place of a new root, which the command does not see
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
_ANY = 0o1777
_BYTES_A_NAME = 4096


def enter(operations: Sequence[Operation]) -> None:
    """Make what the operations build the root of this process, whose mount namespace is new.

    Raises:
        OSError: A step failed, or what was to be bound is something else by now.
    """
    umask = os.umask(0)
    for operation in operations:
        # A link's meaning in the old root; there it would be one in the new.
        operation.source = os.path.realpath(operation.source)
    # What is mounted outside from now on is not here, and the reverse.
    mount("none", "/", None, _RECURSIVE | _PRIVATE)
    mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV)
    for name in (_OLD, _NEW):
        os.mkdir(_BASE + name)
    mount(_BASE + _NEW, _BASE + _NEW, None, _BIND | _RECURSIVE)
    call(number("pivot_root"), _word(_BASE), _word(_BASE + _OLD))
    os.chdir("/")
    for operation in operations:
        _STEPS[operation.kind](operation)
    unmount(_OLD, _DETACH)
    old = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(_NEW)
    call(number("pivot_root"), _word("."), _word("."))
    os.fchdir(old)
    unmount(".", _DETACH)
    os.close(old)
    os.chdir("/")
    os.umask(umask)


def _bind(operation: Operation) -> None:
    source, target = _OLD + operation.source, _NEW + operation.target
    try:
        is_folder = stat.S_ISDIR(os.stat(source).st_mode)
    except OSError:
        if operation.optional:
            return
        raise
    if is_folder:
        _make_folders(target)
    elif not os.path.lexists(target):
        _make_folders(os.path.dirname(target))
        os.close(os.open(target, os.O_CREAT | os.O_CLOEXEC, 0o666))
    mount(source, target, None, _BIND | _RECURSIVE)
    attributes = _SET_NOSUID | (0 if operation.kind == "dev-bind" else _SET_NODEV)
    _restrict(target, attributes | (_SET_READ_ONLY if operation.kind == "ro-bind" else 0))
    if operation.descriptor >= 0:
        _compare(operation.descriptor, target)
        os.close(operation.descriptor)


def _compare(descriptor: int, target: str) -> None:
    meant, bound = os.fstat(descriptor), os.stat(target)
    if (meant.st_dev, meant.st_ino) != (bound.st_dev, bound.st_ino):
        raise OSError(0, "it was exchanged for something else", target.removeprefix(_NEW))


def _restrict(target: str, attributes: int) -> None:
    """Restrict a mount and all below it. Other flags stay, also those that this namespace may not lift."""
    packed = struct.pack("=4Q", attributes, 0, 0, 0)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    call(number("mount_setattr"), _AT_FDCWD, _word(target), _AT_RECURSIVE, buffer, len(packed))


def _tmpfs(operation: Operation) -> None:
    target = _NEW + operation.target
    _make_folders(target)
    # Names without content take memory too.
    bounds = f",size={operation.size},nr_inodes={max(operation.size // _BYTES_A_NAME, 1)}" if operation.size else ""
    mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, f"mode={operation.mode:o}{bounds}")


def _remount_ro(operation: Operation) -> None:
    packed = struct.pack("=4Q", _SET_READ_ONLY, 0, 0, 0)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    call(number("mount_setattr"), _AT_FDCWD, _word(_NEW + operation.target), 0, buffer, len(packed))


def _dir(operation: Operation) -> None:
    target = _NEW + operation.target
    if not os.path.isdir(target):
        _make_folders(os.path.dirname(target))
        os.mkdir(target, operation.mode)


def _proc(operation: Operation) -> None:
    mount("proc", _NEW + operation.target, "proc", _NOSUID | _NODEV | _NOEXEC)


def _dev(operation: Operation) -> None:
    target = _NEW + operation.target
    mount("tmpfs", target, "tmpfs", _NOSUID | _NOEXEC, "mode=755")
    for name in _DEVICES:
        os.close(os.open(f"{target}/{name}", os.O_CREAT | os.O_CLOEXEC, 0o666))
        mount(f"{_OLD}{operation.target}/{name}", f"{target}/{name}", None, _BIND)
    for name, meaning in _DEVICE_LINKS:
        os.symlink(meaning, f"{target}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{target}/{name}", 0o755)
    mount("devpts", f"{target}/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", f"{target}/shm", "tmpfs", _NOSUID | _NODEV, f"mode={_ANY:o}")


_STEPS = {
    "bind": _bind,
    "ro-bind": _bind,
    "dev-bind": _bind,
    "tmpfs": _tmpfs,
    "dir": _dir,
    "proc": _proc,
    "remount-ro": _remount_ro,
    "dev": _dev,
}


def _make_folders(path: str) -> None:
    os.makedirs(path, 0o755, exist_ok=True)


def _word(path: str) -> Buffer:
    return ctypes.create_string_buffer(os.fsencode(path))
