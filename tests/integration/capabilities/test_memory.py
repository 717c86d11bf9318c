"""The memory capability on real Postgres."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from mcp import Client
from mcp.types import TextContent

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import LimitExceeded
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.engine import InProcessMcpServer
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.domain.memories.sql import MAX_CONTENT_CHARS, MAX_MEMORIES, delete_memory, list_memories, save_memory
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.support.harness.tool_server import tool_server

SPEC = AgentSpec(name="x", capabilities={"memory": CapabilityGrant()})


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_1', 'One'), ('ten_2', 'Two')")


class Agent:
    """An agent that calls memory tools."""

    def __init__(self, database: Database, tenant_id: str, agent_id: str) -> None:
        self._context = CapabilityContext(tenant_id, agent_id, "thr_1", "run_1")
        self._registry = default_registry(database, Settings(), SystemClock(), serve=tool_server())

    async def call(self, tool: str, **given: Any) -> str:
        """Return a tool's result; an error after an exclamation mark."""
        server = (await self._registry.resolve(SPEC, self._context))["memory"]
        assert isinstance(server, InProcessMcpServer)
        async with Client(server.built()) as client:
            result = await client.call_tool(tool, given)
        (content,) = result.content
        assert isinstance(content, TextContent)
        return f"!{content.text}" if result.is_error else content.text


def _id(said: str) -> str:
    return said.removeprefix("Saved as ").removesuffix(".")


async def test_a_fact_is_shared_by_the_agents_of_a_tenant_and_no_others(database: Database) -> None:
    one, other, stranger = (Agent(database, *who) for who in (("ten_1", "a"), ("ten_1", "b"), ("ten_2", "a")))
    memory_id = _id(await one.call("memory_save", content="  Likes tea "))
    assert (await other.call("memory_list")).endswith(": Likes tea")
    assert await stranger.call("memory_list") == "Nothing is remembered."
    assert await stranger.call("memory_delete", memory_id=memory_id) == (
        f"!There is no memory {memory_id!r}. Was it deleted before?"
    )
    assert await other.call("memory_delete", memory_id=memory_id) == f"Deleted {memory_id}."
    assert await one.call("memory_list") == "Nothing is remembered."


async def test_saving_an_equal_memory_changes_nothing(database: Database) -> None:
    agent = Agent(database, "ten_1", "a")
    assert await agent.call("memory_save", content="Likes tea") == await agent.call("memory_save", content="Likes tea")
    assert len((await agent.call("memory_list")).splitlines()) == 1
    assert (await Agent(database, "ten_2", "a").call("memory_save", content="Likes tea")).startswith("Saved as mem_")


async def test_memories_are_listed_newest_first_and_page_by_page(database: Database) -> None:
    agent = Agent(database, "ten_1", "a")
    ids = [_id(await agent.call("memory_save", content=f"Fact {number}")) for number in range(5)]
    newest, older, more = (await agent.call("memory_list", limit=2)).splitlines()
    assert (newest.split()[0], older.split()[0]) == (ids[4], ids[3])
    assert more == f"There may be more: ask with before={ids[3]}."
    rest = await agent.call("memory_list", before=ids[3])
    assert [line.split()[0] for line in rest.splitlines()] == [ids[2], ids[1], ids[0]]


async def test_memories_are_found_by_literal_words(database: Database) -> None:
    agent = Agent(database, "ten_1", "a")
    await agent.call("memory_save", content="Pays 100% on time")
    await agent.call("memory_save", content="Likes tea")
    assert (await agent.call("memory_list", contains="100% ON")).endswith("Pays 100% on time")
    assert await agent.call("memory_list", contains="1%0") == "Nothing with '1%0'."


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("memory_save", {"content": "   "}, "content: String should have at least 1 character"),
        ("memory_save", {"content": "x" * (MAX_CONTENT_CHARS + 1)}, "content: String should have at most 2000"),
        ("memory_save", {}, "content: Field required"),
        ("memory_list", {"limit": 0}, "limit: Input should be greater than or equal to 1"),
        ("memory_delete", {"memory_id": "run_1'; DROP TABLE memories"}, "memory_id: String should match pattern"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, tool: str, given: dict[str, Any], says: str
) -> None:
    said = await Agent(database, "ten_1", "a").call(tool, **given)
    assert said.startswith("!")
    assert says in said


async def test_a_tenant_has_a_limit(database: Database) -> None:
    await database.execute(
        "INSERT INTO memories (id, tenant_id, agent_id, content) "
        "SELECT 'mem_' || lpad(n::text, 26, '0'), 'ten_1', 'a', 'Fact ' || n FROM generate_series(1, :many::int) n",
        many=MAX_MEMORIES,
    )
    assert await Agent(database, "ten_1", "a").call("memory_save", content="One more") == (
        f"!There are {MAX_MEMORIES} memories already, which is the most. Delete those that no longer matter."
    )
    assert (await Agent(database, "ten_1", "a").call("memory_save", content="Fact 7")).startswith("Saved as mem_")
    assert (await Agent(database, "ten_2", "a").call("memory_save", content="One more")).startswith("Saved as mem_")


async def test_the_ledger_validates_memories_itself(database: Database) -> None:
    async with database.connection() as connection:
        with pytest.raises(LimitExceeded, match="at most 2000 characters"):
            await save_memory(connection, "ten_1", "a", "x" * 2001)
        memory = await save_memory(connection, "ten_1", "a", "x" * 2000)
        assert await list_memories(connection, "ten_1", limit=5) == (memory,)
        assert not await delete_memory(connection, "ten_2", memory.id)
        assert await delete_memory(connection, "ten_1", memory.id)
        assert not await delete_memory(connection, "ten_1", memory.id)


async def test_a_database_that_is_down_is_a_tool_error() -> None:
    database = PostgresDatabase("postgresql://nobody@127.0.0.1:1/none", pool_size=1)
    said = await Agent(database, "ten_1", "a").call("memory_list")
    assert said.startswith("!The database ")


def test_the_tools_are_described_to_the_model_in_few_words(database: Database) -> None:
    (memory,) = (
        item
        for item in default_registry(database, Settings(), SystemClock(), serve=tool_server()).discover()
        if item.name == "memory"
    )
    assert [(tool.name, tool.idempotent, tool.read_only) for tool in memory.tools] == snapshot(
        [("memory_save", True, False), ("memory_list", True, True), ("memory_delete", True, False)]
    )
