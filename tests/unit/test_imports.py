"""Which libraries a process loads: they are most of the time that it takes to start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from models import migrate
from nova_workers.ledger.schema import schema_head

_HEAVY = ("alembic", "anthropic", "claude_agent_sdk", "mcp", "models", "sqlalchemy", "sqlmodel")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("api.app", _HEAVY),
        ("nova_workers.worker.app", ("alembic", "fastapi", "models", "sqlalchemy", "sqlmodel")),
        (
            "nova_workers.console.server",
            (*_HEAVY, "asyncpg", "celery", "fastapi", "kombu", "openai", "redis", "typer"),
        ),
        ("nova_workers.cli.app", (*_HEAVY, "celery", "fastapi", "pydantic", "redis", "rich")),
    ],
)
def test_a_process_loads_no_library_that_it_does_not_use(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    env = os.environ | {"NOVA_DATABASE_URL": "postgresql://unused", "NOVA_REDIS_URL": "redis://unused"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=env)
    assert done.stdout.split() == []


def test_the_schema_that_the_api_needs_is_that_of_the_newest_migration() -> None:
    assert schema_head() == migrate.head()
