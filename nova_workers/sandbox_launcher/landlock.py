"""Landlock: what a process and its children may do with files, connections and signals."""

import ctypes
import os
import stat
import struct

from nova_workers.sandbox_launcher.kernel import call
from nova_workers.sandbox_launcher.numbers import number

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BASE = (1 << 13) - 1
_SINCE = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))

READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = (_BASE | _REFER | _TRUNCATE) & ~(_MAKE_CHAR | _MAKE_BLOCK)
WRITE_DEVICES = WRITE | _IOCTL_DEV
EVERYTHING = _BASE | _REFER | _TRUNCATE | _IOCTL_DEV

_NETWORK_SINCE, SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3
_ASK_VERSION = 1
_PATH_BENEATH = 1


def version() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none, or it is off."""
    try:
        return call(number("landlock_create_ruleset"), None, 0, _ASK_VERSION)
    except (OSError, KeyError, ValueError):
        return 0


class Ruleset:
    """What is permitted. Everything else that this kernel's Landlock knows is denied once it is enforced."""

    def __init__(self, *, network: bool, signals: bool = False, files: bool = True) -> None:
        """Begin with nothing permitted. Tracing and the memory of processes outside are denied whatever is permitted.

        Args:
            network: Whether TCP is left alone, in place of denied.
            signals: Whether signals and abstract sockets are.
            files: Whether files are denied; if not, mounts stay permitted too.

        Raises:
            OSError: The kernel has no Landlock.
        """
        known = version()
        self._handled = (_BASE | sum(right for since, right in _SINCE if known >= since)) if files else 0
        tcp = _BIND_AND_CONNECT if known >= _NETWORK_SINCE and not network else 0
        scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if known >= SCOPES_SINCE and not signals else 0
        fields = (self._handled, tcp, scopes)
        # Older kernels refuse a structure with fields that they do not know.
        count = 3 if known >= SCOPES_SINCE else 2 if known >= _NETWORK_SINCE else 1
        attributes = struct.pack(f"={count}Q", *fields[:count])
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        self._descriptor = call(number("landlock_create_ruleset"), buffer, len(attributes), 0)

    def permit(self, path: str | int, rights: int) -> None:
        """Permit rights at a path, or an open descriptor, and below. A path that is not there is left out."""
        if isinstance(path, int):
            self._permit(path, rights)
            return
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._permit(descriptor, rights)
        os.close(descriptor)

    def enforce(self) -> None:
        """Hold this process and its children to the rules, for ever. It must have given up new privileges."""
        call(number("landlock_restrict_self"), self._descriptor, 0)
        os.close(self._descriptor)

    def _permit(self, descriptor: int, rights: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights & self._handled, descriptor)
        buffer = ctypes.create_string_buffer(rule, len(rule))
        call(number("landlock_add_rule"), self._descriptor, _PATH_BENEATH, buffer, 0)
