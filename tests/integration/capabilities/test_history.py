"""The history capability on real Postgres, and through the whole loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextContent
from pydantic import SecretStr
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.ids import new_id
from nova_workers.bootstrap.worker import WorkerServices, build_worker
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.engine import InProcessMcpServer
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import seed_run
from tests.integration.history.past_conversations import PastConversations
from tests.requirements import proves
from tests.support.data.seeded_embeddings import SeededEmbeddings
from tests.support.harness.tool_server import tool_server
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

SPEC = AgentSpec(name="x", capabilities={"history": CapabilityGrant()})


class Agent:
    """An agent that calls history tools."""

    def __init__(
        self,
        database: Database,
        tenant_id: str = "ten_1",
        agent_id: str = "nova",
        *,
        thread_id: str = "thr_now",
        embedder: Embedder | None = None,
    ) -> None:
        self._context = CapabilityContext(tenant_id, agent_id, thread_id, "run_1")
        self._registry = default_registry(database, Settings(), SystemClock(), embedder=embedder, serve=tool_server())

    async def call(self, tool: str, **given: Any) -> str:
        """Return a tool's result; an error after an exclamation mark."""
        server = (await self._registry.resolve(SPEC, self._context))["history"]
        assert isinstance(server, InProcessMcpServer)
        async with Client(server.built()) as client:
            result = await client.call_tool(tool, given)
        (content,) = result.content
        assert isinstance(content, TextContent)
        return f"!{content.text}" if result.is_error else content.text


async def test_a_hit_has_its_date_title_and_the_messages_around_it(database: Database) -> None:
    past = PastConversations(database)
    thread = await past.thread(title="Holidays")
    before = await past.say("Hello", "Hello to you.", thread=thread, days_ago=3)
    hit = await past.say("We fly to Lisbon in May", "How nice!", thread=thread, days_ago=3)
    await past.say("Bye", "Until then.", thread=thread, days_ago=2)
    said = await Agent(database).call("history_search", query="lisbon")
    assert said.splitlines() == [
        f"# Holidays (thread {thread[1]})",
        "2026-05-29 12:00 you: Hello to you.",
        f"→ {hit.message_ids[0]} 2026-05-29 12:00 user: We fly to Lisbon in May",
        "2026-05-29 12:00 you: How nice!",
    ]
    alone = await Agent(database).call("history_search", query="lisbon", around=0)
    assert alone.splitlines()[1:] == [said.splitlines()[2]]
    wide = await Agent(database).call("history_search", query="lisbon", around=5)
    assert len(wide.splitlines()) == 7
    assert before.message_ids[0] not in wide


async def test_overlapping_windows_are_merged_and_gaps_are_marked(database: Database) -> None:
    past = PastConversations(database)
    thread = await past.thread()
    for number in range(6):
        await past.say(f"Question {number}", f"The heron {number}" if number in {0, 1, 5} else "Well.", thread=thread)
    said = (await Agent(database).call("history_search", query="heron")).splitlines()
    assert said[0].startswith("# Untitled (thread thr_")
    assert [line.partition(": ")[2] or line for line in said[1:]] == [
        "Question 0",
        "The heron 0",
        "Question 1",
        "The heron 1",
        "Question 2",
        "[…]",
        "Question 5",
        "The heron 5",
    ]


async def test_text_between_tool_calls_is_shown_and_tool_results_are_not(database: Database) -> None:
    run = await seed_run(
        database,
        [("query", "Look it up"), ("response", "I shall."), ("tool_results", "42 rows"), ("response", "It is there.")],
        thread=await PastConversations(database).thread(),
        effects=(),
    )
    said = await Agent(database).call("history_read", thread_id=run.thread_id)
    assert [line.partition(": ")[2] for line in said.splitlines()[1:]] == ["Look it up", "I shall.", "It is there."]


async def test_reading_continues_from_a_hit_and_from_the_end(database: Database) -> None:
    past = PastConversations(database)
    thread = await past.thread(title="Long")
    runs = [await past.say(f"Q{number}", f"A{number}", thread=thread) for number in range(8)]
    agent = Agent(database)

    def texts(said: str) -> list[str]:
        return [line.partition(": ")[2] for line in said.splitlines()[1:]]

    middle = await agent.call("history_read", thread_id=thread[1], message_id=runs[3].message_ids[0], before=2, after=3)
    assert texts(middle) == ["Q2", "A2", "Q3", "A3", "Q4", "A4"]
    end = await agent.call("history_read", thread_id=thread[1], before=2)
    assert texts(end) == ["A6", "Q7", "A7"]
    nothing = await past.thread()
    assert await agent.call("history_read", thread_id=nothing[1]) == f"Nothing was said in thread {nothing[1]} yet."


@proves("history.own")
async def test_an_agent_sees_its_own_threads_except_the_current_one(database: Database) -> None:
    past = PastConversations(database)
    mine = await past.say("The heron is mine")
    others = [
        await past.say("The heron of a colleague", agent_id="helper"),
        await past.say("The heron of a stranger", tenant_id="ten_2"),
    ]
    agent = Agent(database)
    said = await agent.call("history_search", query="heron")
    assert said.count("heron") == 1
    assert "mine" in said
    for other in others:
        assert await agent.call("history_read", thread_id=other.thread_id) == (
            f"!You have no thread {other.thread_id!r}. Was it deleted?"
        )
        # Nor by way of a thread of its own.
        read = await agent.call("history_read", thread_id=mine.thread_id, message_id=other.message_ids[0])
        assert read.startswith(f"!Thread {mine.thread_id!r} has no message")
    here = Agent(database, thread_id=mine.thread_id)
    assert (await here.call("history_search", query="heron")).startswith("Nothing was found for 'heron'.")


@proves("history.deleted")
async def test_a_deleted_thread_is_neither_found_nor_read(database: Database) -> None:
    run = await PastConversations(database).say("The heron")
    async with database.transaction() as transaction:
        await delete_thread(transaction, run.tenant_id, run.thread_id)
    agent = Agent(database)
    assert (await agent.call("history_search", query="heron")).startswith("Nothing was found")
    assert "Was it deleted?" in await agent.call("history_read", thread_id=run.thread_id)


async def test_a_period_is_given_by_days_or_times(database: Database) -> None:
    past = PastConversations(database)
    await past.say("The heron of May", days_ago=10)
    await past.say("The heron of June", days_ago=0)
    agent = Agent(database)
    assert "of May" not in await agent.call("history_search", query="heron", since="2026-06-01")
    assert "of June" not in await agent.call("history_search", query="heron", until="2026-06-01T14:00:00+02:00")
    assert (
        await agent.call("history_search", query="heron", since="2026-06-01", until="2026-05-01")
    ) == "!until is '2026-05-01T00:00:00+00:00', which is not after since, '2026-06-01T00:00:00+00:00'."


async def test_long_messages_are_cut_in_a_search_and_longer_in_a_read(database: Database) -> None:
    run = await PastConversations(database).say(f"{'word ' * 4_000}heron {'word ' * 100}")
    found = await Agent(database).call("history_search", query="heron", around=0)
    assert "heron" in found
    assert len(found) < 1_000
    read = await Agent(database).call("history_read", thread_id=run.thread_id)
    assert 6_000 < len(read) < 7_000


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("history_search", {"query": "  "}, "query: String should have at least 1 character"),
        ("history_search", {"query": "\ud800"}, "query: Input should be a valid string"),
        ("history_search", {"query": "x" * 2_001}, "query: String should have at most 2000 characters"),
        ("history_search", {"query": "x", "limit": 21}, "limit: Input should be less than or equal to 20"),
        ("history_search", {"query": "x", "around": -1}, "around: Input should be greater than or equal to 0"),
        ("history_search", {"query": "x", "since": "yesterday"}, "since: Input should be a valid datetime"),
        ("history_search", {"query": "x", "since": "0001-01-01T00:00:00+14:00"}, "between the years 1 and 9999"),
        ("history_search", {"query": "x", "agent_id": "other"}, "agent_id: Extra inputs are not permitted"),
        ("history_read", {"thread_id": "thr_' OR true --"}, "You have no thread"),
        ("history_read", {"thread_id": "a\x00b"}, "You have no thread"),
        ("history_read", {"thread_id": "thr_1", "before": 51}, "before: Input should be less than or equal to 50"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, tool: str, given: dict[str, Any], says: str
) -> None:
    said = await Agent(database).call(tool, **given)
    assert said.startswith("!")
    assert says in said


async def test_a_query_of_odd_characters_is_harmless(database: Database) -> None:
    await PastConversations(database, SeededEmbeddings()).say("The heron")
    agent = Agent(database, embedder=None)
    for query in ("\x00", "' | !'", "\\", "@ten_1"):
        assert (await agent.call("history_search", query=query)).startswith("Nothing was found")


# Through the whole loop


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    harness = Harness(database, redis, settings)
    await harness.open()
    await harness.add_agent("nova", {"name": "Nova", "engine": "anthropic", "capabilities": {"history": {}}})
    yield harness
    await harness.close()


@pytest.fixture
async def worker(settings: Settings, server: ModelServer) -> AsyncIterator[WorkerServices]:
    """A whole worker as bootstrap builds it, with the model that ships with the fleet."""
    model = settings.model.model_copy(update={"base_url": server.url, "api_key": SecretStr("the-key")})
    services = build_worker(settings.model_copy(update={"model": model}))
    await services.start()
    yield services
    await services.aclose()


async def _turn(harness: Harness, worker: WorkerServices, message: str) -> str:
    accepted = await harness.submit(message, agent_id="nova")
    (bell,) = harness.bells.take()
    await worker.executor.answer(bell)
    assert await harness.status(accepted.run_id) == "succeeded"
    return accepted.thread_id


@proves("history.own", "history.hybrid")
async def test_a_message_of_one_thread_is_found_in_another(
    harness: Harness, worker: WorkerServices, server: ModelServer
) -> None:
    server.reply(Stream((Part("text", ["A fine ", "name for a cat."]),)))
    thread_id = await _turn(harness, worker, "Our kitten is called Whiskers")
    assert await worker.effects.run_due() == 1

    call = Part("tool", (new_id("msg"), "history_search", {"query": "which pets do they have?"}))
    server.reply(Stream((call,)), Stream((Part("text", ["You have ", "Whiskers."]),)))
    await _turn(harness, worker, "Who lives with us?")
    (result,) = server.requests[-1]["messages"][-1]["content"]
    told = result["content"][0]["text"]
    assert f"(thread {thread_id})" in told
    assert "user: Our kitten is called Whiskers" in told
    assert "you: A fine name for a cat." in told
