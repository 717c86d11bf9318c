"""What was said in a run becomes vectors that are found by meaning."""

import math
import random
from collections.abc import Sequence

import pytest

from nova_workers.effects.embeddings import EmbeddingEffect
from nova_workers.effects.local import LocalEmbeddings
from nova_workers.effects.provider import Vector
from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Database
from nova_workers.ledger.embeddings import EmbeddedMessage, MessageText, save_embeddings, search_messages
from tests.integration.effects.conftest import MakeRunner
from tests.integration.effects.ledger import effect, make_due, seed_run, seed_thread


class Counting:
    """A provider that gives each text a direction of its own, and remembers its calls."""

    def __init__(self, dimensions: int = 384, model: str = "counting") -> None:
        self.model = model
        self.dimensions = dimensions
        self.calls: list[list[str]] = []
        self.fails = False

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        if self.fails:
            raise Unavailable("away")
        return [_direction(text, self.dimensions) for text in texts]

    async def close(self) -> None:
        """Nothing is open."""


def _direction(seed: str, dimensions: int = 384) -> list[float]:
    rng = random.Random(seed)
    raw = [rng.gauss(0, 1) for _ in range(dimensions)]
    length = math.sqrt(sum(number * number for number in raw))
    return [number / length for number in raw]


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
    provider = Counting()
    assert await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due() == 3

    expected = ["where is the report?", "the one of May", "It is on the shelf."]
    assert [sorted(call) for call in provider.calls] == [sorted(expected * 2)]
    rows = await database.fetch("SELECT * FROM embeddings ORDER BY message_id")
    wanted = sorted(run.message_ids[seq] for run in runs for seq in (0, 3, 4))
    assert [row["message_id"] for row in rows] == wanted
    assert {(row["model"], row["dimensions"], row["agent_id"]) for row in rows} == {("counting", 384, "nova")}
    assert {row["tenant_id"] for row in rows} == {run.tenant_id for run in runs}


async def test_a_crash_after_the_write_embeds_nothing_twice(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = Counting()
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
    provider = Counting()
    await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=5)}).run_due()
    assert [len(call) for call in provider.calls] == [5, 3]
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 8


async def test_a_provider_that_is_away_is_asked_again(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    provider = Counting()
    provider.fails = True
    runner = make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)})
    await runner.run_due()
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 0
    provider.fails = False
    await make_due(database)
    await runner.run_due()
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 2
    assert (await effect(database, run.run_id, "embeddings"))["attempts"] == 2


async def test_switched_off_it_is_done_without_vectors(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    await make_runner({"embeddings": EmbeddingEffect(database, None, batch_size=32)}).run_due()
    assert (await effect(database, run.run_id, "embeddings"))["status"] == "done"
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 0


async def test_the_provider_can_be_switched_and_each_model_is_searched_by_itself(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database, [("query", "a"), ("response", "b")], effects=["embeddings"])
    for provider in (Counting(), Counting(dimensions=1536, model="wide")):
        await database.execute("UPDATE effects SET status = 'pending', due_at = now()")
        await make_runner({"embeddings": EmbeddingEffect(database, provider, batch_size=32)}).run_due()
        async with database.transaction() as transaction:
            hits = await search_messages(
                transaction,
                tenant_id=run.tenant_id,
                vector=_direction("b", provider.dimensions),
                model=provider.model,
            )
        assert [hit.message_id for hit in hits] == [run.message_ids[1], run.message_ids[0]]
        assert hits[0].similarity == pytest.approx(1, abs=1e-5)
    assert await database.fetchval("SELECT count(*) FROM embeddings") == 4


async def test_search_finds_by_meaning_within_tenant_and_agent_and_leaves_out_deleted_threads(
    database: Database, make_runner: MakeRunner
) -> None:
    mine = await seed_thread(database)
    about_password = await seed_run(
        database, [("query", "I cannot log in any more")], thread=mine, effects=["embeddings"]
    )
    await seed_run(database, [("query", "Bake the bread for an hour")], thread=mine, effects=["embeddings"])
    other_agent = await seed_run(
        database, [("query", "My login stopped working")], thread=mine, effects=["embeddings"], agent_id="helper"
    )
    foreign = await seed_run(database, [("query", "I cannot log in any more")], effects=["embeddings"])
    deleted = await seed_thread(database, tenant_id=mine[0])
    await seed_run(database, [("query", "I cannot log in any more")], thread=deleted, effects=["embeddings"])
    await database.execute("UPDATE threads SET deleted_at = now() WHERE id = $1", deleted[1])
    local = LocalEmbeddings()
    runner = make_runner({"embeddings": EmbeddingEffect(database, local, batch_size=32)})
    await runner.run_due()
    (query,) = await local.embed(["lost password"])
    await runner.close()

    async with database.transaction() as transaction:
        everyone = await search_messages(transaction, tenant_id=mine[0], vector=query, model=local.model, limit=2)
        only = await search_messages(transaction, tenant_id=mine[0], vector=query, model=local.model, agent_id="nova")
    assert {hit.message_id for hit in everyone} == {about_password.message_ids[0], other_agent.message_ids[0]}
    assert only[0].message_id == about_password.message_ids[0]
    assert len(only) == 2
    assert foreign.message_ids[0] not in {hit.message_id for hit in (*everyone, *only)}


async def test_search_walks_the_index_on_until_it_has_enough(database: Database) -> None:
    """A small tenant's vectors are found behind a thousand of another's that are nearer."""
    big, small = await seed_run(database, [("query", "x")], effects=[]), await seed_run(database, effects=[])
    await database.execute(
        "INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)"
        " SELECT 'msg_' || n, $1, $2, $3, n + 100, 'query', 'user', '[]' FROM generate_series(1, 1200) n",
        big.tenant_id,
        big.thread_id,
        big.turn_id,
    )
    query = _direction("query")
    near = [
        EmbeddedMessage(
            MessageText(big.tenant_id, "nova", big.thread_id, f"msg_{n}", ""),
            [a + 0.05 * b for a, b in zip(query, _direction(f"n{n}"), strict=True)],
        )
        for n in range(1, 1201)
    ]
    far = [
        EmbeddedMessage(MessageText(small.tenant_id, "nova", small.thread_id, message, ""), _direction(message))
        for message in small.message_ids
    ]
    async with database.transaction() as transaction:
        await save_embeddings(transaction, near, model="m")
        await save_embeddings(transaction, far, model="m")
        await save_embeddings(transaction, far, model="m")
        await save_embeddings(transaction, [], model="m")
    await database.execute("ANALYZE embeddings")

    async with database.transaction() as transaction:
        await transaction.execute("SET LOCAL enable_seqscan = off")
        await transaction.execute("SET LOCAL enable_sort = off")
        hits = await search_messages(transaction, tenant_id=small.tenant_id, vector=query, model="m", limit=5)
    assert {hit.message_id for hit in hits} == set(small.message_ids)


async def test_search_uses_the_hnsw_index(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await seed_run(database, effects=[])
    await database.execute(
        "INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)"
        " SELECT 'msg_' || n, $1, $2, $3, n + 100, 'query', 'user', '[]' FROM generate_series(1, 2000) n",
        run.tenant_id,
        run.thread_id,
        run.turn_id,
    )
    vectors = [
        EmbeddedMessage(MessageText(run.tenant_id, "nova", run.thread_id, f"msg_{n}", ""), _direction(str(n)))
        for n in range(1, 2001)
    ]
    async with database.transaction() as transaction:
        await save_embeddings(transaction, vectors, model="m")
    await database.execute("ANALYZE embeddings")

    plans: list[str] = []

    class Explaining:
        """A connection that explains a search before it runs it."""

        def __init__(self, connection: object) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

        async def fetch(self, query: str, *args: object) -> object:
            fetch = self._connection.fetch  # type: ignore[attr-defined]  # a Connection
            plans.extend(row[0] for row in await fetch(f"EXPLAIN {query}", *args))
            return await fetch(query, *args)

    async with database.transaction() as transaction:
        hits = await search_messages(
            Explaining(transaction),  # type: ignore[arg-type]  # hands everything on
            tenant_id=run.tenant_id,
            vector=_direction("17"),
            model="m",
            limit=3,
        )
    assert "ix_embeddings__hnsw_384" in "\n".join(plans)
    assert hits[0].message_id == "msg_17"
