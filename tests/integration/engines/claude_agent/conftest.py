"""The real program in front of a local model server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from nova_workers.engines.claude_agent import ClaudeAgentEngine
from tests.integration.engines.claude_agent.claude_turns import MODEL, Sessions
from tests.support.servers.model_server import ModelServer, model_server

MakeEngine = Callable[..., ClaudeAgentEngine]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model."""
    async with model_server() as server:
        yield server


@pytest.fixture
async def make_engine(server: ModelServer) -> AsyncIterator[MakeEngine]:
    """Makes engines; each is another worker."""
    made: list[ClaudeAgentEngine] = []

    def make(**given: object) -> ClaudeAgentEngine:
        environment = {"PATH": os.environ["PATH"], "NOVA_DATABASE_URL": "postgresql://secret", "AWS_SECRET": "secret"}
        settings: dict[str, object] = {"environment": environment, "api_key": "k-secret", "base_url": server.url}
        engine = ClaudeAgentEngine(**{**settings, "max_retries": 0, **given})  # pyright: ignore[reportArgumentType] - settings by name
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture
def engine(make_engine: MakeEngine) -> ClaudeAgentEngine:
    """One engine."""
    return make_engine()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A working directory with a file, beside one that is not the agent's."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "note.txt").write_text("inside\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    return inside


@pytest.fixture
def sessions() -> Sessions:
    """A store of sessions in memory."""
    return Sessions()


__all__ = ["MODEL", "MakeEngine"]
