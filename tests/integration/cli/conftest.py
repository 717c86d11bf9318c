"""One real fleet for all commands, since it takes seconds to start."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet
from tests.support.servers.databases import TEMPLATE, own_valkey


def logical_database(url: str, number: int) -> str:
    """Return the URL of another logical database of a Redis. `urlsplit` would lose the slashes of ``unix://``."""
    return f"{url.partition('?')[0]}?db={number}"


@pytest.fixture(scope="session")
def fleet(postgres_url_admin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """API, worker and beat on servers of their own."""
    name = f"test_{uuid.uuid4().hex}"

    async def run_sql(sql: str) -> None:
        admin = await asyncpg.connect(postgres_url_admin)
        try:
            await admin.execute(sql)
        finally:
            await admin.close()

    home = tmp_path_factory.mktemp("fleet")
    with own_valkey() as redis_url, asyncio.Runner() as runner:
        runner.run(run_sql(f'CREATE DATABASE "{name}" TEMPLATE {TEMPLATE} STRATEGY file_copy'))
        env = {
            "NOVA_DATABASE_URL": urlsplit(postgres_url_admin)._replace(path=f"/{name}").geturl(),
            "NOVA_REDIS_URL": redis_url,
            "NOVA_HOME": str(home),
            "NOVA_RUNS__RECONCILE_EVERY_S": "1",
            # Otherwise tasks of one test would be worked on during another, depending on the hour.
            "NOVA_TASKS__TICK_EVERY_S": "86400",
        }
        fleet = Fleet(env, beat=True, log_dir=home / "logs")
        runner.run(fleet.__aenter__())
        try:
            yield fleet
        finally:
            runner.run(fleet.__aexit__(None, None, None))
            runner.run(run_sql(f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
def nova(fleet: Fleet, tmp_path: Path) -> Nova:
    """The command, for the fleet, in a home without files."""
    return Nova(
        {
            **fleet.env,
            "NOVA_HOME": str(tmp_path),
            "NOVA_API_URL": fleet.api_url,
            "NOVA_API_KEY": fleet.api_key,
            "NO_COLOR": "1",
        }
    )


@pytest.fixture
def script() -> Callable[..., str]:
    """Builds a message for the scripted engine."""

    def make(*items: dict[str, Any]) -> str:
        return json.dumps({"script": list(items)})

    return make
