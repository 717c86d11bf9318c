"""Master keys that a program or a file holds: read at the start, again while the process runs, and for a rotation.

A program is run without a shell, with bounds on its time and output. What it prints is never logged, nor is what it
writes to its standard error: it may be a trace of the keys.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import structlog

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.errors import ConfigurationError

_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 65_536
"""Of the output, and of a file: a key with its id has 80 bytes."""
_OWN_VARIABLES: Final = "NOVA_"
"""How the variables begin that the program does not get: the fleet's own, such as passwords of databases."""
_LEAST_PAUSE_S: Final = 5.0
"""The least time between two reads in the background."""

_log = structlog.get_logger(__name__)

Check = Callable[[Sequence[str]], None]
"""Refuses lines that are no keys, with a `ValueError` that does not quote them."""


class MasterKeySource(Protocol):
    """Where master keys come from."""

    def texts(self) -> tuple[str, ...]:
        """Return the keys as they were last read; the same object while they are unchanged."""
        ...

    async def refresh(self) -> None:
        """Read them again now.

        Raises:
            ConfigurationError: They cannot be read; those that were read before stay.
        """
        ...

    def refresh_soon(self) -> None:
        """Read them again in the background: something is encrypted with a key that is not among them."""
        ...


class FixedKeys:
    """Keys that do not change while the process runs."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)

    def texts(self) -> tuple[str, ...]:
        """Return the keys."""
        return self._texts

    async def refresh(self) -> None:
        """Do nothing."""

    def refresh_soon(self) -> None:
        """Do nothing."""


class HeldKeys:
    """Keys of a program or a file, which a thread of its own reads again: no event loop waits for a program."""

    def __init__(self, read: Callable[[], bytes], check: Check, *, every_s: float) -> None:
        """Take what reads them. The first read is that of the first `texts`.

        Args:
            read: Returns one key a line; raises `ConfigurationError`.
            check: Refuses what are no keys.
            every_s: How often to read them again.
        """
        self._read = read
        self._check = check
        self._every_s = every_s
        self._texts: tuple[str, ...] = ()
        self._reading = threading.Lock()
        self._wake = threading.Event()
        self._follower_pid: int | None = None

    def texts(self) -> tuple[str, ...]:
        """Return the keys as they were last read.

        Raises:
            ConfigurationError: They were never read, and cannot be.
        """
        if not self._texts:
            self.read()
        if self._follower_pid != os.getpid():
            # A process that was forked has no threads of its parent.
            self._follower_pid = os.getpid()
            self._wake = threading.Event()
            arguments = (weakref.ref(self), self._wake, self._every_s)
            threading.Thread(target=_follow, args=arguments, name="master-keys", daemon=True).start()
        return self._texts

    async def refresh(self) -> None:
        """Read them again now.

        Raises:
            ConfigurationError: They cannot be read; those that were read before stay.
        """
        await asyncio.to_thread(self.read)

    def refresh_soon(self) -> None:
        """Read them again in the background."""
        self._wake.set()

    def read(self) -> None:
        """Read them, blocking.

        Raises:
            ConfigurationError: They cannot be read, or are no keys.
        """
        with self._reading:
            try:
                texts = tuple(self._read().decode("ascii").split())
                if not texts:
                    raise ValueError("there is no key")
                self._check(texts)
            except UnicodeDecodeError:
                raise ConfigurationError("The master keys that were read are not text.") from None
            except ValueError as error:
                raise ConfigurationError(f"The master keys that were read cannot be used: {error}.") from None
            if texts != self._texts:
                self._texts = texts


def _follow(keys_ref: weakref.ref[HeldKeys], wake: threading.Event, every_s: float) -> None:
    """Read keys again and again, until they are no longer used."""
    while True:
        wake.wait(every_s)
        wake.clear()
        keys = keys_ref()
        if keys is None:
            return
        try:
            keys.read()
        except ConfigurationError as error:
            # Those that were read before stay: a program that does not answer stops no run.
            _log.warning("master_keys.not_read", error=error.message)
        del keys
        time.sleep(min(_LEAST_PAUSE_S, every_s))


def read_file(path: Path) -> bytes:
    """Return the content of a file of keys.

    Raises:
        ConfigurationError: It cannot be read, or is too long.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"The file of master keys {str(path)!r} cannot be read: {error.strerror}.") from error
    return _bounded(content, len(content) - _MAX_BYTES, "file of master keys")


def read_command(command: Sequence[str]) -> bytes:
    """Run a program, and return what it prints.

    Raises:
        ConfigurationError: It cannot be started, fails, takes too long or prints too much.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    # A loop of its own: where the first read is made, one may be running.
    with ThreadPoolExecutor(1) as pool:
        run = run_child(command, Bounds(_TIMEOUT_S, _MAX_BYTES), env=env)
        try:
            result = pool.submit(asyncio.run, run).result()
        except OSError as error:
            raise ConfigurationError(
                f"The program of master keys {command[0]!r} does not start: {error.strerror}."
            ) from error
    if result.exit_code is None:
        raise ConfigurationError(f"The program of master keys took longer than {_TIMEOUT_S:g} s.")
    if result.exit_code != 0:
        raise ConfigurationError(
            f"The program of master keys ended with {result.exit_code}. Run it as the user of the fleet to see why: "
            "what it writes is not logged."
        )
    return _bounded(result.head, result.omitted_bytes, "output of the program of master keys")


def _bounded(content: bytes, omitted_bytes: int, what: str) -> bytes:
    if omitted_bytes > 0:
        raise ConfigurationError(f"The {what} has more than {_MAX_BYTES:,} bytes.")
    return content
