"""A conversation that grows too long continues with a summary of its older part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import ModelSettings, Settings
from nova_workers.bootstrap.windows import EngineWindows
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.runs import Submission
from nova_workers.domain.runs.rules.turns.compaction import turn_sizes
from nova_workers.domain.threads.sql.history import HistoryTurn, load_history_turns
from nova_workers.ledger.database import Database
from tests.integration.runs.turns.test_live_events import events_of, replay_of
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import Harness

_WINDOW = 1_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A model with a small window, so that conversations of a test fill it."""
    model = settings.model.model_copy(update={"max_context_tokens": _WINDOW})
    return settings.model_copy(update={"model": model})


@pytest.fixture
async def small_harness(database: Database, redis: Redis, settings: Settings):
    """A fleet whose model has the small window."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield harness
    await harness.close()


def _answer(text: str, *, context_tokens: int) -> str:
    return json.dumps({"script": [{"say": text, "usage": {"input_tokens": context_tokens, "output_tokens": 0}}]})


async def _send(harness: Harness, message: str, thread_id: str | None = None) -> str:
    worker = harness.workers[0] if harness.workers else harness.worker()
    fields: dict[str, Any] = {} if thread_id else {"agent_id": "scripted"}
    run = await harness.submit(message, thread_id, **fields)
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded", dict(await harness.run(run.run_id))
    return run.thread_id


async def _turn_kinds(harness: Harness, thread_id: str) -> list[str]:
    """Return the kinds of the turns that the model would get now."""
    head = await harness.database.fetchval(
        "SELECT head_turn_id FROM threads WHERE id = :thread_id", thread_id=thread_id
    )
    async with harness.database.connection() as connection:
        turns = await load_history_turns(connection, harness.tenant_id, head)
    return ["summary" if turn.summary else "turn" for turn in turns]


async def test_a_short_conversation_is_sent_whole(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("one", context_tokens=300))
    await _send(small_harness, _answer("two", context_tokens=700), thread_id)
    assert await _turn_kinds(small_harness, thread_id) == ["turn", "turn"]
    assert await small_harness.database.fetchval("SELECT count(*) FROM compactions") == 0


async def test_a_turn_after_a_full_window_begins_with_a_summary(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("x" * 1300, context_tokens=400))
    for _ in range(2):
        await _send(small_harness, _answer("short", context_tokens=900), thread_id)
    record = await small_harness.database.fetchrow(
        "SELECT c.*, t.type, t.depth FROM compactions c JOIN turns t ON t.id = turn_id"
    )
    assert record is not None
    assert record["trigger"] == "context_limit"
    assert record["tokens_before"] >= 900 > record["tokens_after"]
    assert record["turns_summarized"] == 1
    assert record["summary"].startswith("<summary>")
    assert record["first_kept_turn_id"] is not None
    assert await _turn_kinds(small_harness, thread_id) == ["summary", "turn", "turn"]
    moves = await small_harness.database.fetch(
        "SELECT move FROM thread_heads WHERE thread_id = :thread_id ORDER BY id", thread_id=thread_id
    )
    assert [row["move"] for row in moves] == ["turn", "turn", "compaction", "turn"]
    usages = await small_harness.database.fetch(
        "SELECT run_id FROM usage WHERE thread_id = :thread_id", thread_id=thread_id
    )
    assert sorted(row["run_id"] is None for row in usages) == [False, False, False, True]
    await check_any_time(small_harness.database)
    await check_heads(small_harness.database)


async def test_a_replay_from_the_ledger_has_the_compactions_of_its_own_run(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("x" * 1300, context_tokens=400))
    for _ in range(2):
        await _send(small_harness, _answer("short", context_tokens=900), thread_id)
    runs = await small_harness.database.fetch("SELECT id FROM runs ORDER BY id")
    for run in runs:
        live, again = await events_of(small_harness, run["id"]), await replay_of(small_harness, run["id"])
        assert _compactions(live) == _compactions(again)
    assert len(_compactions(await replay_of(small_harness, runs[-1]["id"]))) == 2


def _compactions(events: list[JsonObject]) -> list[JsonObject]:
    """Return the compaction events without their times, each with the number of steps before it."""
    steps = 0
    found: list[JsonObject] = []
    for event in events:
        steps += event["type"] == "step"
        if event["type"] == "compaction":
            found.append({**event, "at": steps})
    return found


async def test_a_conversation_can_be_compacted_repeatedly(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("x" * 1500, context_tokens=900))
    for _ in range(5):
        await _send(small_harness, _answer("y" * 1500, context_tokens=900), thread_id)
    assert await small_harness.database.fetchval("SELECT count(*) FROM compactions") >= 3
    kinds = await _turn_kinds(small_harness, thread_id)
    assert kinds[0] == "summary"
    assert kinds.count("summary") == 1
    assert len(kinds) <= 3


async def test_after_an_overflow_the_compacted_conversation_is_sent_once(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("x" * 1500, context_tokens=100))
    await _send(small_harness, _answer("y" * 1500, context_tokens=100), thread_id)
    overflow = json.dumps(
        {"script": [{"error": {"kind": "context_overflow", "message": "prompt is too long", "retryable": False}}]}
    )
    run = await small_harness.submit(overflow, thread_id)
    await small_harness.settle(small_harness.workers[0])
    row = await small_harness.run(run.run_id)
    assert (row["status"], row["error_kind"]) == ("failed", "context_overflow")
    triggers = await small_harness.database.fetch("SELECT trigger FROM compactions")
    assert [row["trigger"] for row in triggers] == ["overflow_recovery"]


@pytest.mark.parametrize(
    ("kind", "media_type"), [("image", "image/jpeg"), ("document", "application/pdf")], ids=["a picture", "a document"]
)
async def test_an_image_counts_as_the_tokens_that_a_model_reads(
    database: Database, redis: Redis, settings: Settings, kind: str, media_type: str
):
    settings = settings.model_copy(update={"model": ModelSettings(max_context_tokens=20_000)})
    harness = Harness(database, redis, settings)
    await harness.open()
    thread_id = await _send(harness, _answer("x" * 20_000, context_tokens=2_000))
    # Its base64 would fill the window of 20,000 tokens, and then be too much to be kept beside the summary.
    source = {"type": "base64", "media_type": media_type, "data": "A" * 100_000}
    content = ({"type": kind, "source": source}, text_block(_answer("short", context_tokens=17_000)))
    await harness.submitter.submit(Submission(harness.tenant_id, content, thread_id=thread_id))
    await harness.settle(harness.workers[0])
    assert await database.fetchval("SELECT count(*) FROM compactions") == 0
    await _send(harness, _answer("short", context_tokens=100), thread_id)
    assert await _turn_kinds(harness, thread_id) == ["summary", "turn", "turn"]
    await harness.close()


def test_images_in_tool_results_count_likewise():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
    shown = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture, text_block("a cat")]}
    plain, with_picture = (
        HistoryTurn(str(at), False, (Message("user", (block,)),)) for at, block in enumerate((text_block("hi"), shown))
    )
    sizes = turn_sizes([plain, with_picture], 0)
    assert 1_600 < sizes[1] < 1_700


async def test_a_lost_reply_to_the_compaction_writes_it_once(small_harness: Harness):
    thread_id = await _send(small_harness, _answer("x" * 1500, context_tokens=400))
    await _send(small_harness, _answer("short", context_tokens=900), thread_id)
    small_harness.workers[0].faults.plan("lose_reply", "compaction", nth=1)
    await _send(small_harness, _answer("again", context_tokens=100), thread_id)
    assert await small_harness.database.fetchval("SELECT count(*) FROM compactions") == 1
    assert await _turn_kinds(small_harness, thread_id) == ["summary", "turn", "turn"]
    await check_heads(small_harness.database)


@pytest.mark.parametrize(
    ("model", "windows", "compacted"),
    [
        ("claude-haiku-4-5", {}, True),
        ("claude-sonnet-5-5", {}, False),
        ("sonnet", {}, False),
        ("claude-sonnet-5-5", {"sonnet": 200_000}, True),
        ("sonnet", {"claude-sonnet-5-5": 200_000}, True),
        ("nobody-knows", {}, True),
        ("nobody-knows", {"nobody-knows": 500_000}, False),
    ],
)
@proves("engine.windows")
async def test_fallback_and_compaction_use_the_same_windows(
    database: Database, redis: Redis, settings: Settings, model: str, windows: dict[str, int], *, compacted: bool
):
    given = {"max_context_tokens": 10_000_000, "context_windows": windows}
    settings = settings.model_copy(update={"model": ModelSettings.model_validate(given)})
    harness = Harness(database, redis, settings)
    await harness.open()
    await harness.add_agent("long", {"name": "Long", "engine": "scripted", "model": model})
    run = await harness.submit(_answer("x" * 1500, context_tokens=170_000), agent_id="long")
    await harness.settle(harness.worker())
    for _ in range(2):
        await _send(harness, _answer("short", context_tokens=170_000), run.thread_id)
    known = EngineWindows(settings)
    assert (known.context_tokens("anthropic", model) == 200_000) is compacted
    assert bool(await database.fetchval("SELECT count(*) FROM compactions")) is compacted
    await harness.close()


async def test_a_conversation_fills_no_more_of_a_large_window_than_the_setting_allows(
    database: Database, redis: Redis, settings: Settings
):
    settings = settings.model_copy(update={"model": ModelSettings()})
    harness = Harness(database, redis, settings)
    await harness.open()
    await harness.add_agent("long", {"name": "Long", "engine": "scripted", "model": "claude-sonnet-5-5"})
    run = await harness.submit(_answer("x" * 1500, context_tokens=170_000), agent_id="long")
    await harness.settle(harness.worker())
    for _ in range(2):
        await _send(harness, _answer("short", context_tokens=170_000), run.thread_id)
    assert EngineWindows(settings).context_tokens("anthropic", "claude-sonnet-5-5") == 1_000_000
    assert await database.fetchval("SELECT count(*) FROM compactions")
    await harness.close()
