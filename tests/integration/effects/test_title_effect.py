"""A thread gets its title after the user's second message."""

import pytest

from nova_workers.base.config import EffectSettings
from nova_workers.base.errors import Outage
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import (
    EngineError,
    EngineOptions,
    EngineResult,
    EngineUsage,
    TrustLevel,
    TurnListener,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.effects.rules.title import TITLE_INSTRUCTIONS, TitleEffect
from nova_workers.ledger.database import Database
from tests.integration.effects.conftest import MakeRunner
from tests.integration.effects.ledger import effect, make_due, seed_run, seed_thread
from tests.requirements import proves


class FixedAnswer:
    """An engine that gives one answer, and records its calls."""

    name = "says"

    def __init__(self, text: str) -> None:
        self.text = text
        self.error: EngineError | None = None
        self.asked: list[tuple[str, EngineOptions, TrustLevel]] = []

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        self.asked.append((str(message), options, trust))
        usage = EngineUsage(tokens=TokenUsage(input_tokens=100, output_tokens=7, cost_usd=0.001), turns=1)
        reason = "error" if self.error else "end_turn"
        return EngineResult(text=self.text, stop_reason=reason, usage=usage, model="claude-haiku-x", error=self.error)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def engine() -> FixedAnswer:
    return FixedAnswer('"Lost Password Recovery."')


async def _title(database: Database, thread_id: str) -> str | None:
    return await database.fetchval("SELECT title FROM threads WHERE id = :thread_id", thread_id=thread_id)


async def _run_title(
    database: Database,
    make_runner: MakeRunner,
    engine: FixedAnswer,
    metrics: Metrics,
    thread: tuple[str, str],
    text: str,
) -> str:
    run = await seed_run(database, [("query", text), ("response", "Try the link.")], thread=thread, effects=["title"])
    await make_runner({"title": TitleEffect(database, engine, metrics=metrics)}).run_due()
    return run.run_id


async def test_the_second_message_of_the_user_names_the_thread(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    thread = await seed_thread(database)
    await _run_title(database, make_runner, engine, metrics, thread, "I lost my password")
    assert await _title(database, thread[1]) is None
    assert engine.asked == []

    run_id = await _run_title(database, make_runner, engine, metrics, thread, "The link " + "x" * 5000)
    assert await _title(database, thread[1]) == "Lost Password Recovery"
    ((message, options, trust),) = engine.asked
    assert "I lost my password" in message
    assert "Try the link." in message
    assert len(message) < 2000
    assert (options.model, options.system_prompt, options.max_turns, trust) == (
        "haiku",
        TITLE_INSTRUCTIONS,
        1,
        "sandbox",
    )
    assert not options.mcp_servers
    assert options.max_tokens is not None
    assert (await effect(database, run_id, "title"))["status"] == "done"
    value = metrics.registry.get_sample_value
    assert value("nova_tokens_total", {"model": "claude-haiku-x", "kind": "output"}) == 7
    assert value("nova_cost_usd_total", {"model": "claude-haiku-x"}) == 0.001

    await _run_title(database, make_runner, engine, metrics, thread, "Thanks")
    assert len(engine.asked) == 1


async def test_a_steering_message_counts_as_the_users(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    run = await seed_run(
        database, [("query", "I lost my password"), ("steering", "for the shop"), ("response", "Ok")], effects=["title"]
    )
    await make_runner({"title": TitleEffect(database, engine, metrics=metrics)}).run_due()
    assert await _title(database, run.thread_id) == "Lost Password Recovery"


async def test_an_unusable_title_is_replaced_by_the_users_first_words(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    engine.text = "I'm sorry, I cannot name this conversation."
    thread = await seed_thread(database)
    await _run_title(database, make_runner, engine, metrics, thread, "please help: I lost my password today")
    await _run_title(database, make_runner, engine, metrics, thread, "hello?")
    assert await _title(database, thread[1]) == "please help: I lost my password"


async def test_a_title_that_the_user_gave_is_kept(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    thread = await seed_thread(database, title="Mine")
    for _ in range(2):
        await _run_title(database, make_runner, engine, metrics, thread, "hello")
    assert await _title(database, thread[1]) == "Mine"
    assert engine.asked == []


async def test_a_title_that_was_set_meanwhile_is_kept(
    database: Database, make_runner: MakeRunner, metrics: Metrics
) -> None:
    class Slow(FixedAnswer):
        async def run(
            self,
            message: str | tuple[JsonObject, ...],
            options: EngineOptions,
            trust: TrustLevel,
            session_id: str | None = None,
            callbacks: TurnListener | None = None,
            abort: AbortSignal | None = None,
        ) -> EngineResult:
            await database.execute("UPDATE threads SET title = 'Mine'")
            return await super().run(message, options, trust)

    thread = await seed_thread(database)
    engine = Slow("Lost Password Recovery")
    for _ in range(2):
        await _run_title(database, make_runner, engine, metrics, thread, "hello")
    assert len(engine.asked) == 1
    assert await _title(database, thread[1]) == "Mine"


async def test_a_deleted_thread_costs_no_model_call(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    thread = await seed_thread(database)
    await database.execute("UPDATE threads SET deleted_at = now()")
    for _ in range(2):
        await _run_title(database, make_runner, engine, metrics, thread, "hello")
    assert engine.asked == []


async def test_a_failing_model_is_called_again_later(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    thread = await seed_thread(database)
    await _run_title(database, make_runner, engine, metrics, thread, "I lost my password")
    engine.error = EngineError(kind="rate_limit", message="slow down", retryable=True)
    run_id = await _run_title(database, make_runner, engine, metrics, thread, "hello?")
    row = await effect(database, run_id, "title")
    assert (row["status"], row["error"]) == ("pending", "EngineFailure: slow down")
    engine.error = None
    await make_due(database)
    await make_runner({"title": TitleEffect(database, engine, metrics=metrics)}).run_due()
    assert await _title(database, thread[1]) == "Lost Password Recovery"


@proves("runs.holds")
async def test_a_provider_that_cannot_be_used_costs_a_title_no_attempt(
    database: Database, make_runner: MakeRunner, metrics: Metrics, engine: FixedAnswer
) -> None:
    thread = await seed_thread(database)
    await _run_title(database, make_runner, engine, metrics, thread, "I lost my password")
    engine.error = EngineError(
        "auth_failure", "refused", retryable=False, outage=Outage("anthropic", "key_refused", "default")
    )
    title = {"title": TitleEffect(database, engine, metrics=metrics)}
    run_id = await _run_title(database, make_runner, engine, metrics, thread, "hello?")
    for _ in range(3):
        row = await effect(database, run_id, "title")
        assert (row["status"], row["attempts"]) == ("pending", 0)
        await database.execute("UPDATE effects SET created_at = now() - interval '10 minutes', due_at = now()")
        await make_runner(title, settings=EffectSettings(max_attempts=1)).run_due()
    row = await effect(database, run_id, "title")
    # Half of its age, which is ten minutes and what the try took.
    assert 250 < float(str(row["due_in_s"])) < 350
    # As long as a run in the background would wait.
    await database.execute("UPDATE effects SET created_at = now() - interval '25 hours', due_at = now()")
    await make_runner(title, settings=EffectSettings(max_attempts=1)).run_due()
    assert (await effect(database, run_id, "title"))["status"] == "failed"
