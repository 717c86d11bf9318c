"""The anthropic engine before a model server that we did not write, with the real memory capability in Postgres."""

from collections.abc import AsyncIterator, Iterator

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineOptions
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.domain.memories.sql import list_memories
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.contract.engines.stage import TurnRecorder, assert_valid
from tests.support.harness.tool_server import tool_server
from tests.support.servers.fakellm_server import fakellm_server

AGENT = AgentSpec(name="Nova", capabilities={"memory": CapabilityGrant()})
RULES = [
    {
        "name": "save",
        "when": {"messages_contain": "remember that I like tea", "turn": 1, "tools_include": "memory_save"},
        "respond": {
            "content": "I shall remember.",
            "tool_calls": [
                {"name": "memory_save", "arguments": {"content": "Likes tea"}},
                {"name": "memory_list", "arguments": {"limit": 1000}},
            ],
        },
    },
    {
        "name": "saved",
        "when": {"tool_result_contains": "Saved as mem_", "turn": 2},
        "respond": {"content": "Done, it is saved."},
    },
    {"name": "plain", "when": {"messages_contain": "plain"}, "respond": {"content": "As plain as can be."}},
]


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fakellm_server(tmp_path_factory.mktemp("fakellm"), RULES) as url:
        yield url


@pytest.fixture
async def engine(model_url: str) -> AsyncIterator[AnthropicEngine]:
    engine = AnthropicEngine(api_key="not-used", base_url=model_url)
    yield engine
    await engine.close()


@pytest.fixture
async def tenant_id(database: Database) -> str:
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_1', 'One')")
    return "ten_1"


async def test_an_answer_streams(engine: AnthropicEngine) -> None:
    recorder = TurnRecorder()
    result = await engine.run("plain, please", EngineOptions(), "sandbox", callbacks=recorder.callbacks())
    assert result.text == "".join(recorder.tokens) == "As plain as can be."
    assert len(recorder.tokens) == 5
    assert result.usage.tokens.output_tokens > 0


async def test_a_memory_is_saved_through_the_whole_loop(
    engine: AnthropicEngine, database: Database, tenant_id: str
) -> None:
    context = CapabilityContext(tenant_id, agent_id="nova", thread_id="thr_1", run_id="run_1")
    servers = await default_registry(database, Settings(), SystemClock(), serve=tool_server()).resolve(AGENT, context)
    recorder = TurnRecorder()
    result = await engine.run(
        "Please remember that I like tea",
        EngineOptions(mcp_servers=servers),
        "sandbox",
        callbacks=recorder.callbacks(),
    )
    assert result.text == "Done, it is saved."
    assert ("narration", "I shall remember.") in recorder.log
    save, listing = result.tool_calls
    assert text_of(save.result or ()).startswith("Saved as mem_")
    assert listing.status == "failed"
    assert "limit: Input should be less than or equal to 100" in (listing.error or "")
    async with database.connection() as connection:
        (memory,) = await list_memories(connection, tenant_id, limit=10)
    assert (memory.content, memory.agent_id) == ("Likes tea", "nova")
    assert_valid(result.messages)
