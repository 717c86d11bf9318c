"""Messages of a run get words and vectors for search, and lose them with their thread."""

import asyncio
import os
import signal
from collections.abc import Sequence

from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.effects.rules.provider import Vector
from nova_workers.domain.search.sql.embeddings import forget_thread
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.ledger.database import Database
from tests.integration.effects.conftest import MakeRunner
from tests.integration.effects.ledger import SeededRun, effect, make_due, seed_run, seed_thread
from tests.requirements import proves
from tests.support.data.seeded_embeddings import SeededEmbeddings
from tests.support.waiting import until


async def test_the_users_messages_and_the_answer_are_embedded_in_one_batch(
    database: Database, make_runner: MakeRunner
) -> None:
    said = [
        ("query", "where is the report?"),
        ("response", "Let me look."),
        ("tool_results", "a listing"),
        ("steering", "the one of May"),
        ("response", "It is on the shelf."),
    ]
    runs = [await seed_run(database, said, effects=["embeddings"]) for _ in range(2)]
    await seed_run(database, [("query", "  "), ("response", "")], effects=["embeddings"])
    provider = SeededEmbeddings()
    assert await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due() == 3

    expected = ["where is the report?", "the one of May", "It is on the shelf."]
    assert [sorted(call) for call in provider.calls] == [sorted(expected * 2)]
    rows = await database.fetch("SELECT * FROM embeddings ORDER BY message_id")
    wanted = sorted(run.message_ids[seq] for run in runs for seq in (0, 3, 4))
    assert [row["message_id"] for row in rows] == wanted
    assert {(row["model"], row["dimensions"], row["agent_id"]) for row in rows} == {("directions", 384, "nova")}
    assert {row["tenant_id"] for row in rows} == {run.tenant_id for run in runs}


async def test_the_standing_prompt_of_a_task_is_not_indexed_and_the_answer_is(
    database: Database, make_runner: MakeRunner
) -> None:
    said = [("query", "Work on task 7."), ("steering", "mind the gap"), ("response", "It is done.")]
    task = await seed_run(database, said, effects=["embeddings"])
    trigger = await seed_run(database, [("query", "Look at the mail.")], effects=["embeddings"])
    for run, source in ((task, "task"), (trigger, "trigger")):
        await database.execute("UPDATE runs SET source = :source WHERE id = :run_id", run_id=run.run_id, source=source)
    provider = SeededEmbeddings()
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due()
    found = {row["content"] for row in await database.fetch("SELECT content FROM message_texts")}
    assert found == {"mind the gap", "It is done.", "Look at the mail."}
    assert {text for call in provider.calls for text in call} == found


async def test_a_crash_after_the_write_embeds_nothing_twice(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = SeededEmbeddings()
    runner = make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)})
    await runner.run_due()
    await database.execute("UPDATE effects SET status = 'running', due_at = now()")
    await runner.run_due()
    assert len(provider.calls) == 1
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 2
    assert (await effect(database, run.run_id, "embeddings"))["status"] == "done"


async def test_texts_of_many_runs_go_out_in_calls_of_the_batch_size(
    database: Database, make_runner: MakeRunner
) -> None:
    for _ in range(4):
        await seed_run(database, effects=["embeddings"])
    provider = SeededEmbeddings()
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=5)}).run_due()
    assert [len(call) for call in provider.calls] == [5, 3]
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 8


async def test_an_unavailable_provider_is_called_again_later(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = SeededEmbeddings()
    provider.fails = True
    runner = make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)})
    await runner.run_due()
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 0
    provider.fails = False
    await make_due(database)
    await runner.run_due()
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 2
    assert (await effect(database, run.run_id, "embeddings"))["attempts"] == 2


async def test_words_are_indexed_while_the_provider_is_unavailable(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = SeededEmbeddings()
    provider.fails = True
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due()
    assert await _kept(database, run) == (2, 0)


async def test_words_are_indexed_while_the_model_is_busy(database: Database, make_runner: MakeRunner) -> None:
    model = LocalEmbeddings()
    await model.embed(["hello"])
    child = model.child_pid
    assert child is not None
    os.kill(child, signal.SIGSTOP)
    runner = make_runner({"embeddings": EmbeddingEffect(database, model, batch_size=32)})
    runs, working = [], []
    try:
        # The first has the model's only turn, the second waits for it.
        for _ in range(2):
            runs.append(await seed_run(database, effects=["embeddings"]))
            working.append(asyncio.create_task(runner.run_due()))
            await _until_kept(database, runs[-1], (2, 0))
        os.kill(child, signal.SIGCONT)
        await asyncio.gather(*working)
    finally:
        await model.close()
    assert [await _kept(database, run) for run in runs] == [(2, 2), (2, 2)]


async def test_a_failed_write_of_words_costs_no_model_call(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    await database.execute("ALTER TABLE message_texts ADD CONSTRAINT none_today CHECK (false) NOT VALID")
    model = SeededEmbeddings()
    await make_runner({"embeddings": EmbeddingEffect(database, model, batch_size=32)}).run_due()
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"], model.calls) == ("pending", 1, [])
    assert "none_today" in str(row["error"])


async def test_with_embeddings_disabled_only_words_are_indexed(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    await make_runner({"embeddings": EmbeddingEffect(database, None, batch_size=32)}).run_due()
    assert (await effect(database, run.run_id, "embeddings"))["status"] == "done"
    assert await _kept(database, run) == (2, 0)


async def test_the_beginning_of_a_long_text_is_indexed(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, [("query", "word " * 20_000)], effects=["embeddings"])
    provider = SeededEmbeddings()
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due()
    assert await database.fetchval("SELECT char_length(content) FROM message_texts") == 32_000
    assert [len(text) for text in provider.calls[0]] == [16_000]
    assert await _kept(database, run) == (1, 1)


@proves("history.deleted")
async def test_words_and_vectors_of_a_deleted_thread_are_deleted(database: Database, make_runner: MakeRunner) -> None:
    gone = await seed_run(database, effects=["embeddings"])
    stays = await seed_run(
        database, effects=["embeddings"], thread=await seed_thread(database, tenant_id=gone.tenant_id)
    )
    await make_runner({"embeddings": EmbeddingEffect(database, SeededEmbeddings(), batch_size=32)}).run_due()
    async with database.transaction() as transaction:
        await delete_thread(transaction, gone.tenant_id, gone.thread_id)
        # Not before the commit, and all at once.
        assert await _kept(database, gone) == (2, 2)
    assert await _kept(database, gone) == (0, 0)
    assert await _kept(database, stays) == (2, 2)


async def test_another_tenants_deletion_removes_nothing(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    await make_runner({"embeddings": EmbeddingEffect(database, SeededEmbeddings(), batch_size=32)}).run_due()
    async with database.transaction() as transaction:
        await forget_thread(transaction, "ten_other", run.thread_id)
    assert await _kept(database, run) == (2, 2)


@proves("history.deleted")
async def test_an_effect_after_the_deletion_writes_nothing(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    async with database.transaction() as transaction:
        await delete_thread(transaction, run.tenant_id, run.thread_id)
    provider = SeededEmbeddings()
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due()
    assert await _kept(database, run) == (0, 0)
    assert provider.calls == []


_A_SESSION_WAITS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class _Held(SeededEmbeddings):
    """A provider that blocks in the middle of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.reached.set()
        await self.go_on.wait()
        return await super().embed(texts)


@proves("history.deleted")
async def test_a_thread_that_is_deleted_during_embedding_leaves_no_vectors(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = _Held()
    runner = make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)})
    working = asyncio.create_task(runner.run_due())
    await provider.reached.wait()
    async with database.transaction() as transaction:
        await delete_thread(transaction, run.tenant_id, run.thread_id)
        # The effect writes its vectors and then waits for this transaction to see how it ends.
        provider.go_on.set()
        await until(lambda: database.fetchval(_A_SESSION_WAITS))
    await working
    assert await _kept(database, run) == (0, 0)


async def _until_kept(database: Database, run: SeededRun, kept: tuple[int, int]) -> None:
    async with asyncio.timeout(60):
        while await _kept(database, run) != kept:  # noqa: ASYNC110 - it waits for rows
            await asyncio.sleep(0.01)


async def _kept(database: Database, run: SeededRun) -> tuple[int, int]:
    """Return how many messages of a run's thread have words, and how many have vectors."""
    row = await database.fetchrow(
        "SELECT (SELECT count(*) FROM message_texts WHERE thread_id = :thread_id) AS texts,"
        " (SELECT count(*) FROM embeddings WHERE thread_id = :thread_id) AS vectors",
        thread_id=run.thread_id,
    )
    assert row is not None
    return row["texts"], row["vectors"]


class _Hanging(SeededEmbeddings):
    """Answers once the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        await self.may_answer.wait()
        return await super().embed(texts)


@proves("search.at-once")
async def test_words_are_indexed_while_the_embedder_hangs_and_no_effect_can_be_claimed(
    database: Database, make_runner: MakeRunner
) -> None:
    provider = _Hanging()
    runner = make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=2)}, prepares_all=True)
    runner.slots = 1
    for _ in range(2):
        await seed_run(database, effects=["embeddings"])
    hanging = asyncio.create_task(runner.run_due())

    async def words() -> int:
        return await database.fetchval("SELECT count(*) FROM message_texts")

    async def first_are_indexed() -> bool:
        return await words() == 4

    await until(first_are_indexed)
    for _ in range(5):
        await seed_run(database, effects=["embeddings"])
    assert await runner.run_due() == 0
    assert await words() == 14
    # Claimed later, it is done as if nothing had been prepared.
    provider.may_answer.set()
    assert await hanging == 2
    while await runner.run_due():
        pass
    assert (await words(), await database.fetchval("SELECT count(*) FROM embeddings")) == (14, 14)
