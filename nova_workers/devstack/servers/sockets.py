"""Private folders for Unix sockets, whose paths the kernel limits to about 100 bytes."""

import hashlib
import os
import tempfile
from pathlib import Path

from nova_workers.base.errors import ConfigurationError

_MAX_PATH_BYTES = 100
"""Linux takes 107, macOS 103."""
_LONGEST_NAME = ".s.PGSQL.5432.lock"


def socket_folder(data: Path, *, owner_uid: int | None = None) -> Path:
    """Return a folder for the socket of the server whose data is in `data`.

    It is the data folder itself, which is private. Under a deep home it is a private folder in the system's
    temporary one, named by the data folder, so that the same data always gets the same socket. (A loopback port
    would be open to every account of the machine.)

    Args:
        data: The server's data folder, absolute.
        owner_uid: Who runs the server; None for this process's own user.

    Raises:
        ConfigurationError: The folder exists and belongs to another user.
    """
    if len(os.fsencode(data / _LONGEST_NAME)) <= _MAX_PATH_BYTES:
        return data
    owner = os.getuid() if owner_uid is None else owner_uid
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"nova-{owner}-{digest}"
    try:
        folder.mkdir(mode=0o700)
        os.chown(folder, owner, -1)
    except FileExistsError:
        info = folder.lstat()
        if folder.is_symlink() or not folder.is_dir() or info.st_uid != owner or info.st_mode & 0o077:
            raise ConfigurationError(
                f"{str(folder)!r} must be a private folder for a server's socket, but it is something else or "
                "belongs to another user. Remove it, or set NOVA_HOME to a shorter path."
            ) from None
    return folder
