"""Files of a stack under its home: a lock, and the state file with its addresses."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Conflict

FLOWER_USER = "nova"
FLOWER_PASSWORD_FILE = "flower_password"  # noqa: S105 - a file's name
"""Under the home: the password of Flower's user, if the settings have none."""

_LOCK_FILE = "nova.lock"
_STATE_FILE = "nova.json"


class AlreadyRunning(Conflict):
    """Another stack runs on the same home. ``fields`` has its address."""

    code = "already_running"


class StackState(BaseModel):
    """The running stack of a home, and its addresses. The command line finds the fleet by it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int
    started_at: datetime
    api_url: str
    flower_url: str
    console_url: str | None = None
    """None if there is no console."""
    metrics_urls: tuple[str, ...]
    database_url: str
    redis_url: str
    model: str
    """``local`` for the stand-in on loopback, else ``anthropic``."""
    reloads: int = 0
    """How often API and workers were replaced since the start."""


@contextmanager
def lock_home(home: Path) -> Generator[None]:
    """Hold the home's lock until the block ends. The kernel frees it when this process dies, however it dies.

    Raises:
        AlreadyRunning: Another process holds it.
        ConfigurationError: The home cannot be written.
    """
    is_new = not home.exists()
    file = _take_lock(home)
    try:
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        if is_new:
            _remove_unused(home)
        os.close(file)


def _take_lock(home: Path) -> int:
    while True:
        file = _open_lock(home)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise _already_running(home, pid) from None
        with suppress(FileNotFoundError):
            # Else another start was refused meanwhile, and has removed the file.
            if os.path.samestat(os.fstat(file), (home / _LOCK_FILE).stat()):
                return file
        os.close(file)


def _open_lock(home: Path) -> int:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(home / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"NOVA_HOME is {str(home)!r}, which cannot be used ({error.strerror}). "
            "Set it to a folder that this user may write."
        ) from error


def _remove_unused(home: Path) -> None:
    """Remove a home that was made for a start that was refused; its only file is the lock."""
    if [path.name for path in home.iterdir()] == [_LOCK_FILE]:
        (home / _LOCK_FILE).unlink()
        home.rmdir()


def read_state(home: Path) -> StackState | None:
    """Return the content of the state file; None if it is missing or unreadable."""
    try:
        return StackState.model_validate_json((home / _STATE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(home: Path, state: StackState) -> None:
    """Write the state file, for this user only: a database URL may carry a password."""
    write_private(home / _STATE_FILE, state.model_dump_json(indent=2) + "\n")


def remove_state(home: Path) -> None:
    """Remove the state file after the stack stopped."""
    (home / _STATE_FILE).unlink(missing_ok=True)


def flower_password(settings: Settings) -> str:
    """Return the password of Flower's user: that of the settings, else the one of the home's file, made if missing.

    Raises:
        ConfigurationError: The file cannot be read or made.
    """
    if settings.flower.password is not None:
        return settings.flower.password.get_secret_value()
    path = settings.home / FLOWER_PASSWORD_FILE
    try:
        if not path.exists():
            settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, secrets.token_urlsafe(24) + "\n")
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{str(path)!r}, Flower's password, cannot be read or made ({error}). Give one with NOVA_FLOWER__PASSWORD."
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read; readers see the old or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)


def _already_running(home: Path, pid: str) -> AlreadyRunning:
    state = read_state(home)
    where = (
        f": API {state.api_url}, Flower {state.flower_url}" if state and str(state.pid) == pid else ", still starting"
    )
    return AlreadyRunning(
        f"A fleet runs on {str(home)!r} already (pid {pid or 'unknown'}){where}. "
        f"Use it, stop it with Ctrl-C or `kill {pid}`, or start another on a home of its own: NOVA_HOME=… nova up",
        home=str(home),
        pid=pid,
        api_url=state.api_url if state else None,
    )
