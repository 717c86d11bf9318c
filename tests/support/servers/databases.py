"""A Postgres with a migrated template database, and a Valkey, for tests alone."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from redis import __version__ as redis_version
from redis.asyncio import Redis
from redis.driver_info import DriverInfo

from models import migrate
from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.servers.postgres import THROWAWAY, EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey

TEMPLATE = "nova_template"
"""The migrated database that every test's own is cloned from."""


_HOME_PREFIX = "nova-test-"
_LOCK = "in-use"
"""A file that is locked as long as the process lives that made the home."""
_SETTINGS = {**THROWAWAY, "max_connections": "500"}
"""Each test worker keeps up to 18 warm sessions beside those that its test uses, and a large machine has 16 workers."""
_ROOM_BYTES = 3_000_000_000
"""Postgres's log of what it wrote is up to 1 GB, and more for a moment."""


@contextmanager
def running(spec: ProcessSpec, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Run a child until the block ends; it is ready when the block begins.

    Raises:
        RuntimeError: It ended, or was not ready in time; the message carries its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            spec.command(),
            env=spec.environment(),
            start_new_session=True,  # Ctrl-C is for pytest; it stops the servers itself
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        if not asyncio.run(_becomes_ready(spec, process)):
            raise RuntimeError(f"{spec.name} did not start:\n{log.read_text(errors='replace')}")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(spec.stop_signal)
        try:
            process.wait(spec.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _becomes_ready(spec: ProcessSpec, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + spec.ready_timeout_s
    while spec.ready is not None and not await spec.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def _make_template(postgres: EmbeddedPostgres) -> None:
    await postgres.create_database(TEMPLATE)
    await migrate.upgrade(postgres.url(TEMPLATE))


@contextmanager
def own_postgres(*, with_template: bool = True) -> Generator[str]:
    """Run a Postgres on throw-away data until the block ends, and give the URL of its maintenance database.

    Args:
        with_template: Whether it gets the migrated database that others are copies of.
    """
    with _throwaway_home() as home:
        postgres = EmbeddedPostgres(home, settings=_SETTINGS)
        with running(postgres.spec(), home / "postgres.log"):
            if with_template:
                asyncio.run(_make_template(postgres))
            yield postgres.url("postgres")


@asynccontextmanager
async def own_database(admin_url: str, *, template: str = TEMPLATE) -> AsyncGenerator[str]:
    """Give the URL of a new database, and drop it after the block with its connections.

    Args:
        admin_url: URL of the maintenance database.
        template: The database that it is a copy of: the migrated one, or Postgres's `template1`, which is empty.
    """
    url = await create_database(admin_url, template)
    try:
        yield url
    finally:
        await drop_database(admin_url, url)


async def create_database(admin_url: str, template: str = TEMPLATE) -> str:
    """Make a database, and return its URL."""
    name = f"test_{uuid.uuid4().hex}"
    await _execute(admin_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    return urlsplit(admin_url)._replace(path=f"/{name}").geturl()


async def drop_database(admin_url: str, url: str) -> None:
    """Drop a database with its connections."""
    name = urlsplit(url).path.removeprefix("/")
    await _execute(admin_url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def own_valkey() -> Generator[str]:
    """Run a Valkey on throw-away data until the block ends, and give the URL of its logical database 0."""
    with _throwaway_home() as home:
        valkey = EmbeddedValkey(home)
        with running(valkey.spec(), home / "valkey.log"):
            yield valkey.url()


def _memory() -> Path | None:
    """Return a folder that is kept in memory, if there is a large one: a database a test is a thousand files each."""
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < _ROOM_BYTES:
        return None
    return folder


@contextmanager
def _throwaway_home() -> Generator[Path]:
    folder = _memory() or Path(tempfile.gettempdir())
    delete_abandoned(folder)
    home = Path(tempfile.mkdtemp(prefix=_HOME_PREFIX, dir=folder))
    home.chmod(0o711)  # for PgBouncer, which runs as the user of Postgres; that user's socket is in a folder of its own
    try:
        with (home / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It has its name once it is locked.
            (home / "lock").rename(home / _LOCK)
            yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def delete_abandoned(folder: Path) -> None:
    """Delete the homes of test processes that were killed: each holds 100 MB of memory."""
    for path in folder.glob(f"{_HOME_PREFIX}*/{_LOCK}"):
        with suppress(OSError), path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)


def client_of(redis_url: str) -> Redis:
    """Return a client without what the fleet's have for outages.

    By itself each of its connections would read the library's version from the files of the installed package.
    """
    return Redis.from_url(redis_url, driver_info=DriverInfo(lib_version=redis_version))


@asynccontextmanager
async def replica_of_nothing(redis: Redis) -> AsyncGenerator[None]:
    """Make a server the replica of one that does not exist, for a block: it takes connections and refuses writes."""
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        await redis.execute_command("REPLICAOF", "NO", "ONE")
