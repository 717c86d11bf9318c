"""What an engine knows of the conversation that a turn belongs to: an opaque id, by which a model's failures count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from nova_workers.contracts.engine import EngineOptions, EngineResult
from tests.support.harness.workers import Harness


@dataclass
class Noting:
    """The engine of the fleet, which notes the conversations of its turns."""

    engine: Any
    conversations: list[str | None] = field(default_factory=list[str | None])

    async def __call__(self, message: Any, options: EngineOptions, *others: Any, **named: Any) -> EngineResult:
        self.conversations.append(options.conversation)
        return await self.engine(message, options, *others, **named)


@pytest.fixture
def noting(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Noting:
    """The notes."""
    noting = Noting(harness.engine.run)
    monkeypatch.setattr(harness.engine, "run", noting)
    return noting


async def test_the_runs_of_a_thread_are_one_conversation(harness: Harness, noting: Noting) -> None:
    worker = harness.worker()
    first = await harness.submit("hi")
    await harness.submit("hi again", first.thread_id)
    other = await harness.submit("hi")
    await harness.settle(worker)
    mine, theirs = first.thread_id, other.thread_id
    assert sorted(noting.conversations, key=str) == sorted([mine, mine, theirs])
