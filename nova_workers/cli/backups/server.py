"""The Postgres of a backup or restore: given by URL, that of a running `nova up`, or the embedded one, started here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.devstack.home import AlreadyRunning, lock_home, read_state
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.supervisor import Supervisor
from nova_workers.ledger.database import PostgresDatabase

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Server:
    """A database, as its owner.

    Attributes:
        url: Of the owner of the tables.
        used_url: Of the fleet's processes.
        embedded: Whether it is the one of NOVA_HOME, and nothing else uses it now.
    """

    url: str
    used_url: str
    embedded: bool = False

    def named(self, database: str) -> Server:
        """Return another database of the same server."""

        def other(url: str) -> str:
            return urlsplit(url)._replace(path=f"/{quote(database, safe='')}").geturl()

        return Server(other(self.url), other(self.used_url), self.embedded)


class _Quiet:
    """The terminal gets what the embedded server says only if it fails."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def lines(self, name: str, texts: Sequence[str]) -> None:
        for text in texts:
            self._say(f"{name}: {text}")

    def say(self, text: str, *, alarm: bool = False) -> None:
        if alarm:
            self._say(text)


@asynccontextmanager
async def on_server(settings: Settings, say: Say, *, make: bool) -> AsyncGenerator[Server]:
    """Give the database of the settings, else that of NOVA_HOME, whose Postgres runs until the block ends.

    Args:
        settings: The operator's.
        say: Takes lines for people.
        make: Whether the embedded database may be made.

    Raises:
        ConfigurationError: There is no database, or only the owner's URL is given.
    """
    owner = settings.database_owner_url
    if settings.database_url is not None:
        used = settings.database_url.get_secret_value()
        yield Server(used if owner is None else owner.get_secret_value(), used)
        return
    if owner is not None:
        raise ConfigurationError("NOVA_DATABASE_OWNER_URL is set and NOVA_DATABASE_URL is not. Set both.")
    if not make and not (settings.home / "postgres").exists():
        raise ConfigurationError(
            f"There is no database: NOVA_DATABASE_URL is not set, and {str(settings.home)!r} (NOVA_HOME) has none."
        )
    try:
        with lock_home(settings.home):
            async with _started(EmbeddedPostgres(settings.home), say) as url:
                yield Server(url, url, embedded=True)
    except AlreadyRunning as running:
        state = read_state(settings.home)
        if state is None:
            raise running
        yield Server(state.database_url, state.database_url)


@asynccontextmanager
async def _started(postgres: EmbeddedPostgres, say: Say) -> AsyncGenerator[str]:
    supervisor = Supervisor(_Quiet(say))
    try:
        await supervisor.start([postgres.spec()])
        await postgres.create_database()
        yield postgres.url()
    finally:
        await supervisor.stop()


async def refuse_pooler(database: PostgresDatabase) -> None:
    """Check that sessions with the database are its clients' own.

    `pg_dump` and `pg_restore` change settings of their session, which a pooler then lends to the fleet.

    Raises:
        ConfigurationError: A pooler stands between.
        Unavailable: The database cannot be reached.
    """
    if await database.is_shared():
        raise ConfigurationError(
            "Backups and restores need sessions of their own, and a pooler such as PgBouncer stands before this "
            "database. Set NOVA_DATABASE_OWNER_URL to the address of Postgres itself."
        )
