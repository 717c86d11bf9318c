"""Fixtures on real servers: one Postgres for all, one Valkey a test worker, a fresh database a test.

With xdist the controller runs the servers and tells its workers where they are; without it the first test that
asks for one starts it. Tests that need neither cost neither.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis
import structlog
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr
from redis.asyncio import Redis
from structlog.dev import ConsoleRenderer, plain_traceback

from nova_workers.base import user_code
from nova_workers.base.config import Settings
from nova_workers.base.program import collect_seldom, exclude_from_collections
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.support.harness.ordering import dealt
from tests.support.harness.process_state import ProcessState
from tests.support.harness.reused_database import ReusedDatabase
from tests.support.harness.warm_sessions import warm_sessions
from tests.support.processes.authorities import share_authorities
from tests.support.processes.preloaded import shared_fork_server
from tests.support.processes.user_code import forked_python, shared_forked_python
from tests.support.processes.xdist_workers import forked_interpreter
from tests.support.servers.databases import client_of, own_database, own_postgres, own_valkey

# The bounds of properties are of what is computed, not of time, which other tests share.
hypothesis_settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis_settings.register_profile("thorough", deadline=None, max_examples=300)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_RUNNING = pytest.StashKey[ExitStack]()
_POSTGRES = pytest.StashKey[str]()
_STATE = pytest.StashKey[ProcessState]()
_SHARE_A_FLEET = ("tests/integration/cli/", "tests/browser/", "tests/integration/console/browser/")
"""Folders with a fleet or a browser for all of their tests: it takes seconds to start, and works when none uses it."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the developer's own settings and model keys out of the tests."""
    config.stash[_RUNNING] = ExitStack()
    collect_seldom()
    share_authorities()
    warm_sessions.install()
    *processors, _ = structlog.get_config()["processors"]
    # The default renders each traceback with its source and variables, in colours: a second of CPU.
    structlog.configure([*processors, ConsoleRenderer(exception_formatter=plain_traceback)])
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, and leave those together that share a fleet."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    longest: list[pytest.Item] = []
    sharing: dict[str, list[pytest.Item]] = {folder: [] for folder in _SHARE_A_FLEET}
    others: list[pytest.Item] = []
    for item in items:
        folder = next((folder for folder in sharing if item.nodeid.startswith(folder)), None)
        if folder is not None:
            sharing[folder].append(item)
        else:
            (longest if item.get_closest_marker("begins_first") else others).append(item)
    items[:] = dealt(longest, list(sharing.values()), others, workers=workers)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no collection of garbage walk the tests and their modules, and read the state that each test must leave."""
    exclude_from_collections()
    session.config.stash[_STATE] = ProcessState()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a test that leaves state of the process changed, after all of its fixtures have ended."""
    yield
    if changes := item.config.stash[_STATE].changes():
        pytest.fail("This test changed the process for all later tests: " + "; ".join(changes), pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """In xdist's controller: fork its workers and their processes from some that have imported what they need."""
    # The workers' environment is that of their fork server.
    config.stash[_RUNNING].enter_context(shared_fork_server())
    config.stash[_RUNNING].enter_context(shared_forked_python())
    python = config.stash[_RUNNING].enter_context(forked_interpreter(config.args))
    for spec in specs:
        spec.python = python
    _postgres(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """In xdist's controller: tell a worker where its servers are."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]  # xdist's WorkerController has no types
    node.workerinput.update(  # type: ignore[attr-defined]
        postgres_url_admin=_postgres(config), valkey_url=config.stash[_RUNNING].enter_context(own_valkey())
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started, also after Ctrl-C."""
    config.stash[_RUNNING].close()


def _postgres(config: pytest.Config) -> str:
    if _POSTGRES not in config.stash:
        config.stash[_POSTGRES] = config.stash[_RUNNING].enter_context(own_postgres())
    return config.stash[_POSTGRES]


def _given(config: pytest.Config, name: str) -> str | None:
    """Return what xdist's controller told this worker, or None without xdist."""
    given: dict[str, str] = getattr(config, "workerinput", {})
    return given.get(name)


@pytest.fixture(scope="session")
def postgres_url_admin(pytestconfig: pytest.Config) -> str:
    """URL of the maintenance database, as superuser. All test workers share the server."""
    return _given(pytestconfig, "postgres_url_admin") or _postgres(pytestconfig)


@pytest.fixture(scope="session")
def valkey_url(pytestconfig: pytest.Config) -> str:
    """URL of this test worker's own Valkey: tests that share a server hear each other's channels."""
    return _given(pytestconfig, "valkey_url") or pytestconfig.stash[_RUNNING].enter_context(own_valkey())


@pytest.fixture(scope="session")
def reused_database(postgres_url_admin: str) -> Iterator[ReusedDatabase]:
    """The database of this test worker's tests."""
    database = ReusedDatabase(postgres_url_admin)
    yield database
    database.close()


@pytest.fixture
def database_url(reused_database: ReusedDatabase) -> str:
    """URL of a migrated database that is empty at the start of the test."""
    return reused_database.as_new()


@pytest.fixture
def ending_sessions() -> Iterator[None]:
    """For tests of sessions themselves: each is new, and ends when it is closed."""
    with warm_sessions.none():
        yield


@pytest.fixture
def forked_user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what code of users does: its processes are forked. For their start, keep those of Python."""
    monkeypatch.setattr(user_code, "PYTHON", forked_python())


@pytest.fixture
async def empty_url(postgres_url_admin: str) -> AsyncIterator[str]:
    """URL of a database without tables."""
    async with own_database(postgres_url_admin, template="template1") as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool on the fresh database."""
    database = PostgresDatabase(database_url, pool_size=8)
    yield database
    await database.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_database_url(postgres_url_admin: str) -> AsyncIterator[str]:
    """URL of a migrated database that the tests of a module share: each has a tenant of its own."""
    async with own_database(postgres_url_admin) as url:
        with warm_sessions.of(url):
            yield url


@pytest.fixture
async def shared_database(shared_database_url: str) -> AsyncIterator[Database]:
    """A pool on the module's database."""
    database = PostgresDatabase(shared_database_url, pool_size=2)
    yield database
    await database.close()


@pytest.fixture(scope="session")
def emptying_client(valkey_url: str) -> Iterator[redis.Redis]:
    """A client on this test worker's Valkey that lasts: each test begins with an empty one."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture(scope="module")
def shared_redis_url(valkey_url: str, emptying_client: redis.Redis) -> str:
    """URL of a Redis that is empty at the start of the module."""
    emptying_client.flushall()
    return valkey_url


@pytest.fixture(scope="session")
def default_settings() -> Settings:
    """Settings that point nowhere. To read an environment and check each default takes 6 ms of CPU."""
    return Settings()


def _pointing_at(settings: Settings, *, database_url: str, redis_url: str, home: Path) -> Settings:
    servers = {"database_url": SecretStr(database_url), "redis_url": SecretStr(redis_url)}
    return settings.model_copy(update={**servers, "home": home})


@pytest.fixture(scope="module")
def shared_settings(
    default_settings: Settings,
    shared_database_url: str,
    shared_redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Settings:
    """Settings that point at the module's database and Redis, and a home of the module's own."""
    home = tmp_path_factory.mktemp("home")
    return _pointing_at(default_settings, database_url=shared_database_url, redis_url=shared_redis_url, home=home)


@pytest.fixture
def redis_url(valkey_url: str, emptying_client: redis.Redis) -> str:
    """URL of a Redis that is empty at the start of the test."""
    emptying_client.flushall()
    return valkey_url


@pytest.fixture(name="redis")
async def _redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on the empty Redis."""
    client = client_of(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def settings(default_settings: Settings, database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings that point at the fresh database, the empty Redis and a home of the test's own."""
    return _pointing_at(default_settings, database_url=database_url, redis_url=redis_url, home=tmp_path)
