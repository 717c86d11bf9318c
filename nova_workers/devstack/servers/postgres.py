"""An embedded Postgres 18 with pgvector: a plain child process on a private Unix socket."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import asyncpg

from nova_workers.base.errors import ConfigurationError
from nova_workers.devstack.environments import system_environment
from nova_workers.devstack.process import OsUser, ProcessSpec
from nova_workers.devstack.servers.binaries import postgres_programs
from nova_workers.devstack.servers.sockets import socket_folder
from nova_workers.ledger.sessions import FLEET_ROLE, TENANT_ROLE
from nova_workers.shell_sandbox import SANDBOX_UID

_VERSION = "18"
_SUPERUSER = "postgres"
_LOGIN = "nova_app"
_ACCOUNTS = ("postgres", "daemon")
"""The accounts of which one runs Postgres where the fleet is started as root: `initdb` needs an account with a name."""
_NOT_NEEDED = (
    asyncpg.DuplicateDatabaseError,
    asyncpg.DuplicateObjectError,
    # In a race between two creators.
    asyncpg.UniqueViolationError,
    # The roles, before the first migration.
    asyncpg.UndefinedObjectError,
)
_STATUS_LINE = 7
"""Line of `postmaster.pid`, from 0."""

_SETTINGS = {
    # Only the owner of the socket's folder can connect, so no password is needed.
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "effective_cache_size": "1GB",
    "work_mem": "8MB",
    "maintenance_work_mem": "128MB",
    # Each commit waits for its flush, so accepted runs are on disk. These only reduce writes.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    # For SSDs.
    "random_page_cost": "1.1",
    # Queries of the protocol are index look-ups; compiling them costs more than it saves.
    "jit": "off",
    # One machine, one fleet: nothing replicates.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # The fleet's terminal shows errors only.
    "log_min_messages": "fatal",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The table of runs is updated in place all the time: vacuum it early.
    "autovacuum_naptime": "15s",
    "autovacuum_vacuum_scale_factor": "0.05",
}

THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""Settings for disposable databases of tests."""


class EmbeddedPostgres:
    """Postgres with its data under a home folder.

    Args:
        home: Data goes to ``<home>/postgres``.
        settings: Server settings on top of the defaults.
    """

    def __init__(self, home: Path, *, settings: dict[str, str] | None = None) -> None:
        self._data = home.absolute() / "postgres"
        self._programs = postgres_programs()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = _choose_user(self._data)
        self._sockets = socket_folder(self._data, owner_uid=self._user.uid if self._user else None)

    @property
    def programs(self) -> Path:
        """The folder of the client programs, such as `pg_dump`."""
        return self._programs

    def url(self, database: str = "nova") -> str:
        """Return the URL of a database, for the owner of its tables."""
        return self._url(_SUPERUSER, database)

    def login_url(self) -> str:
        """Return the URL for the processes of the fleet: their user changes rows, and no tables."""
        return self._url(_LOGIN, "nova")

    def spec(self) -> ProcessSpec:
        """Create the data folder if it is missing, and return the process to run.

        Raises:
            ConfigurationError: The data is of another major version, or `initdb` failed.
        """
        self._initialise()
        settings = {**self._settings, "unix_socket_directories": str(self._sockets)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ProcessSpec(
            name="postgres",
            argv=(str(self._programs / "postgres"), "-D", str(self._data), *options),
            inherited=system_environment(os.environ),
            ready=self._answers,
            ready_timeout_s=60.0,
            # Fast shutdown: open sessions are ended, everything is flushed.
            stop_signal=signal.SIGINT,
            stop_timeout_s=30.0,
            death_signal=signal.SIGINT,
            user=self._user,
        )

    async def create_database(self, name: str = "nova") -> None:
        """Create a database unless it exists. The server must be running."""
        await self._execute(f'CREATE DATABASE "{name}"')

    async def create_login(self) -> None:
        """Create the user of the fleet's processes unless it exists. The first migration makes and grants its roles."""
        await self._execute(f"CREATE ROLE {_LOGIN} LOGIN", f"GRANT {FLEET_ROLE}, {TENANT_ROLE} TO {_LOGIN}")

    async def _execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            for statement in statements:
                with suppress(*_NOT_NEEDED):
                    await connection.execute(statement)
        finally:
            await connection.close()

    def _url(self, user: str, database: str) -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self._sockets))}"

    async def _answers(self) -> bool:
        # A connection before it is ready would make it log an error.
        if not self._says_ready():
            return False
        try:
            connection = await asyncpg.connect(self.url("postgres"), timeout=2)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    def _says_ready(self) -> bool:
        try:
            return (self._data / "postmaster.pid").read_text().split("\n")[_STATUS_LINE].strip() == "ready"
        except (FileNotFoundError, IndexError):
            return False

    def _initialise(self) -> None:
        version = self._data / "PG_VERSION"
        if version.exists():
            found = version.read_text().strip()
            if found != _VERSION:
                raise ConfigurationError(
                    f"{str(self._data)!r} holds data of Postgres {found!r}; this version runs {_VERSION}. "
                    "Dump it with the old one and restore, or set NOVA_HOME to another place."
                )
            if self._user is not None and self._data.stat().st_uid != self._user.uid:
                _give(self._data, self._user)
            return
        # Beside its final path, then one rename: an interrupted initdb leaves no partial folder.
        unfinished = self._data.with_name(f"{self._data.name}.new-{os.getpid()}")
        unfinished.mkdir(mode=0o700, parents=True)
        if self._user is not None:
            os.chown(unfinished, self._user.uid, self._user.gid)
        options = ["--auth=trust", "--encoding=UTF8", f"--username={_SUPERUSER}", "--no-instructions"]
        # The built-in provider: sort order comes with Postgres, so an upgrade of libc breaks no index.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        argv = (str(self._programs / "initdb"), *options, str(unfinished))
        initdb = ProcessSpec("initdb", argv, inherited=system_environment(os.environ), user=self._user)
        done = subprocess.run(initdb.command(), env=initdb.environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ConfigurationError(
                f"initdb could not make {str(unfinished)!r}: {done.stderr.strip() or done.stdout.strip()!r}"
            )
        unfinished.rename(self._data)


def _choose_user(data: Path) -> OsUser | None:
    """Return the account to run Postgres as: it refuses to run as root, and tenants' commands have another."""
    if os.geteuid() != 0:
        return None
    owner_uid = data.stat().st_uid if data.exists() else 0
    account = _own_account() if owner_uid in {0, SANDBOX_UID} else pwd.getpwuid(owner_uid)
    # Other accounts cannot enter root's home. Changing its mode would outlive this process; a capability does not.
    reachable = all(_may_enter(folder) for folder in (*data.parents, *postgres_programs().parents))
    return OsUser(account.pw_uid, account.pw_gid, override_access=not reachable)


def _own_account() -> pwd.struct_passwd:
    """Return an account that is neither root's nor that of tenants' commands, which could read its files and socket."""
    for name in _ACCOUNTS:
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            if account.pw_uid not in {0, SANDBOX_UID}:
                return account
    sys.stderr.write(
        f"nova: this machine has none of the accounts {', '.join(_ACCOUNTS)}, so Postgres runs as the user of tenants' "
        "commands, which only the sandbox keeps from its files and socket. Make one: useradd --system postgres\n"
    )
    return pwd.getpwuid(SANDBOX_UID)


def _give(data: Path, user: OsUser) -> None:
    """Give the data folder to an account: that of a release before was the one of tenants' commands."""
    for folder, folders, files in os.walk(data):
        for name in (*folders, *files):
            os.chown(Path(folder, name), user.uid, user.gid, follow_symlinks=False)
    # Last, so that an interrupted change begins again.
    os.chown(data, user.uid, user.gid)


def _may_enter(folder: Path) -> bool:
    return not folder.exists() or bool(folder.stat().st_mode & 0o001)
