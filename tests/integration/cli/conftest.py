"""One real fleet for all commands, since it takes seconds to start."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet
from tests.support.servers.databases import own_database, own_valkey


def logical_database(url: str, number: int) -> str:
    """Return the URL of another logical database of a Redis. `urlsplit` would lose the slashes of ``unix://``."""
    return f"{url.partition('?')[0]}?db={number}"


@pytest.fixture(scope="package")
def fleet(postgres_url_admin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """API, worker and beat on servers of their own."""
    home = tmp_path_factory.mktemp("fleet")
    with own_valkey() as redis_url, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        env = {
            "NOVA_DATABASE_URL": runner.run(stack.enter_async_context(own_database(postgres_url_admin))),
            "NOVA_REDIS_URL": redis_url,
            "NOVA_HOME": str(home),
            "NOVA_RUNS__RECONCILE_EVERY_S": "1",
            # Otherwise tasks of one test would be worked on during another, depending on the hour.
            "NOVA_TASKS__TICK_EVERY_S": "86400",
        }
        try:
            yield runner.run(stack.enter_async_context(Fleet(env, beat=True, log_dir=home / "logs", embeddings=True)))
        finally:
            runner.run(stack.aclose())


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
