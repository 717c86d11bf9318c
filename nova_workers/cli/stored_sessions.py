"""Sessions of `nova login` on this machine: one file for each API, which its owner alone can read."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.errors import ConfigurationError

_PRIVATE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_DIGEST_CHARS: Final = 16


class StoredSession(BaseModel):
    """A person's session at one API, with the key that ends with it."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    api_url: str
    api_key: str
    session_id: str
    name: str
    tenant_id: str
    expires_at: datetime | None


def session_file(api_url: str) -> Path | None:
    """Return where the session of an API is stored; None where the user has no folder for configuration."""
    # The specification of XDG's folders says to ignore relative ones.
    for folder in (os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~/.config")):
        if Path(folder).is_absolute():
            digest = sha256(api_url.encode()).hexdigest()[:_DIGEST_CHARS]
            return Path(folder) / "nova-workers" / "sessions" / f"{urlsplit(api_url).hostname}-{digest}.json"
    return None


def read_session(api_url: str) -> StoredSession | None:
    """Return the session that `nova login` stored for an API; None without one.

    Raises:
        ConfigurationError: The file is damaged, cannot be read, or others could have read or written it.
    """
    path = session_file(api_url)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}). Delete it, or give --api-key.") from error
    if status.st_mode & _OF_OTHERS or status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{path} holds a key, and other users can read or write it. Delete it, and run `nova login` again."
        )
    try:
        session = StoredSession.model_validate_json(content)
    except ValidationError as error:
        raise ConfigurationError(f"{path} is damaged. Delete it, and run `nova login` again.") from error
    return session if session.api_url == api_url else None


def write_session(session: StoredSession) -> Path:
    """Store a session in place of the former one of its API, and return the file.

    Raises:
        ConfigurationError: The user has no folder for configuration.
        OSError: The file cannot be written.
    """
    path = session_file(session.api_url)
    if path is None:
        raise ConfigurationError("There is no folder for the session: set HOME or XDG_CONFIG_HOME.")
    path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_DIRECTORY)
    unfinished = path.with_name(f"{path.name}.{token_hex(8)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(session.model_dump_json(indent=2) + "\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def forget_session(api_url: str) -> None:
    """Delete the stored session of an API, if there is one."""
    path = session_file(api_url)
    if path is not None:
        path.unlink(missing_ok=True)
