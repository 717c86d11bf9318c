"""Which libraries a process loads: they are most of the time that it takes to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.doors.loading import DOORS
from models import migrate
from nova_workers.devstack.commands import api_command
from nova_workers.ledger.schema import schema_head

_ON_DEMAND = ("aiohttp", "mcp_types", "numpy", "openai", "starlette", "uvicorn")
"""What an engine loads with its first turn, beside what is heavy."""
_HEAVY = ("alembic", "anthropic", "claude_agent_sdk", "google.protobuf", "mcp", "models", "sqlalchemy", "sqlmodel")
_LATER = ("genai_prices.data", "jsonschema_rs", "opentelemetry.sdk", "pygments", "rich")
"""What a process loads when it needs it, or what a library imports only because it is installed."""
_SELDOM = (
    "croniter",
    "cryptography",
    "genai_prices",
    "greenlet",
    "httpx2",
    "nova_workers.domain.archive",
    "nova_workers.domain.evaluations",
    "nova_workers.domain.memories.tools",
    "nova_workers.domain.rollouts",
    "tree_sitter",
    "yaml",
)
"""What an API needs for a few kinds of requests, or never."""
_COMMANDS = ("celery.bin", "flower", "prompt_toolkit", "tornado")
"""What Celery's command line imports."""
_RUN_CELERY = "nova_workers.devstack.run_celery"


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (
            f"nova_workers.worker.app, {_RUN_CELERY}, celery.apps.worker",
            (*_HEAVY, *_LATER, *_ON_DEMAND, *_COMMANDS, "fastapi"),
        ),
        (f"beat.app, {_RUN_CELERY}, celery.apps.beat", (*_HEAVY, *_LATER, *_ON_DEMAND, *_COMMANDS, "asyncpg")),
        (
            "nova_workers.console.server",
            (*_HEAVY, "asyncpg", "celery", "fastapi", "kombu", "openai", "redis", "typer"),
        ),
        ("nova_workers.cli.app", (*_HEAVY, "celery", "fastapi", "pydantic", "redis", "rich")),
        ("nova_workers.cli.operations.processes", (*_HEAVY, "asyncpg", "celery", "httpx2", "redis")),
        (
            "nova_workers.cli.talk.send",
            (*_HEAVY, "asyncpg", "celery", "nova_workers.base.config", "pygments", "rich.console"),
        ),
    ],
)
def test_a_process_loads_no_library_that_it_does_not_use(modules: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {modules}; print(*(name for name in {absent!r} if name in sys.modules))"
    env = os.environ | {"NOVA_DATABASE_URL": "postgresql://unused", "NOVA_REDIS_URL": "redis://unused"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=env)
    assert done.stdout.split() == []


_LOADED = """
import runpy, sys
from nova_workers.devstack import run_module

run = runpy.run_module

def load(*arguments, **options):
    import uvicorn
    # It loads its application, and serves no requests.
    uvicorn.Server.run = lambda server: server.config.load()
    run(*arguments, **options)

runpy.run_module = load
try:
    run_module.main()
except SystemExit:
    assert "api.app" in sys.modules
"""


def test_the_server_of_the_api_loads_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    absent = (*_HEAVY, *_LATER, *_SELDOM, "celery", "kombu", "pydantic.v1", "watchfiles", "websockets")
    # Its settings name no door.
    absent += ("api.doors.service", *(f"api.doors.{name.replace('-', '_')}" for name in DOORS))
    code = f"{_LOADED}print(*(name for name in {absent!r} if name in sys.modules))"
    settings = {
        "NOVA_DATABASE_URL": "postgresql://unused",
        "NOVA_REDIS_URL": "redis://unused",
        "NOVA_HOME": str(tmp_path),
    }
    arguments = api_command(host="127.0.0.1", port=0)[3:]
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ | settings)
    assert done.stdout.split() == []


_PROBE = """
import asyncio, os, sys
import nova_workers.worker
from nova_workers.bootstrap.worker import build_worker
from nova_workers.base.config import load_settings

async def probe():
    report = await build_worker(load_settings()).provider_probes.tick()
    assert report.engines["scripted"] == {"": None}, report
    return report.engines["anthropic"][""]

assert asyncio.run(probe()) == "it has no key"
os.environ |= {"ANTHROPIC_API_KEY": "sk-secret", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
assert asyncio.run(probe()) == "it cannot be reached (ConnectError)"
"""


def test_a_worker_tries_its_providers_without_their_libraries(tmp_path: Path) -> None:
    settings = {"NOVA_DATABASE_URL": "postgresql://unused", "NOVA_REDIS_URL": "redis://127.0.0.1:9/0"}
    names = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "NOVA_"))}
    absent = (*_HEAVY, *_LATER, *_ON_DEMAND)
    code = f"{_PROBE}print(*(name for name in {absent!r} if name in sys.modules), file=sys.stderr)"
    env = {**names, **settings, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=env)
    assert done.stderr.split() == []


def test_the_schema_that_the_api_needs_is_that_of_the_newest_migration() -> None:
    assert schema_head() == migrate.head()
