"""What an engine gets of the conversation that a turn belongs to: an opaque id, and the messages before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.contracts.usage import CHARS_PER_TOKEN
from nova_workers.domain.threads.rules.past import SaidMessage, turns_of
from nova_workers.domain.threads.sql.importing import import_turns
from nova_workers.domain.threads.sql.records import create_thread
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import AGENT, Harness


@dataclass
class Noting:
    """The engine of the fleet, which notes the conversations of its turns."""

    engine: Any
    conversations: list[str | None] = field(default_factory=list[str | None])
    histories: list[tuple[Message, ...]] = field(default_factory=list[tuple[Message, ...]])

    async def __call__(self, message: Any, options: EngineOptions, *others: Any, **named: Any) -> EngineResult:
        self.conversations.append(options.conversation)
        self.histories.append(tuple(options.history))
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


async def _imported(harness: Harness, *said: tuple[str, list[JsonObject]]) -> str:
    messages = [SaidMessage(role, blocks, datetime(2024, 3, 1, tzinfo=UTC)) for role, blocks in said]  # pyright: ignore[reportArgumentType] - roles as literals
    async with harness.database.transaction() as transaction:
        thread = await create_thread(transaction, harness.tenant_id, AGENT)
        await import_turns(transaction, harness.tenant_id, thread.id, AGENT, turns_of(messages), embed=False)
    return thread.id


@proves("threads.imported")
async def test_a_run_continues_an_imported_conversation(harness: Harness, noting: Noting) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "find", "input": {"name": "badger"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "/srv/badger.pdf"}
    said: list[tuple[str, list[JsonObject]]] = [
        ("user", [text_block("Where is it?")]),
        ("assistant", [call]),
        ("user", [result]),
        ("assistant", [text_block("In /srv.")]),
    ]
    thread_id = await _imported(harness, *said)
    worker = harness.worker()
    for message in ("hi", "hi again"):
        run = await harness.submit(message, thread_id)
        await harness.settle(worker)
        assert await harness.status(run.run_id) == "succeeded"
    first, second = noting.histories
    assert [(message.role, list(message.content)) for message in first] == said
    assert second[:4] == first
    assert len(second) == 6
    await check_any_time(harness.database)
    await check_heads(harness.database)


@proves("threads.imported")
async def test_a_long_imported_conversation_is_compacted_before_its_next_run(harness: Harness, noting: Noting) -> None:
    tokens = harness.settings.model.max_context_tokens
    text = "x" * (tokens * CHARS_PER_TOKEN // 8)
    said = [("user" if at % 2 == 0 else "assistant", [text_block(text)]) for at in range(10)]
    thread_id = await _imported(harness, *said)
    run = await harness.submit("hi", thread_id)
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"
    record = await harness.database.fetchrow("SELECT * FROM compactions")
    assert record is not None
    assert record["tokens_before"] > tokens > record["tokens_after"]
    assert "<summary>" in str(noting.histories[-1][0].content)
    assert sum(len(str(message.content)) for message in noting.histories[-1]) < tokens * CHARS_PER_TOKEN
