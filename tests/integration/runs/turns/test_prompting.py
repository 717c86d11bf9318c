"""What a model gets at the start of a turn, from the ledger to the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from inline_snapshot import snapshot
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.domain.memories.sql import save_memory
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

AGENT: dict[str, Any] = {
    "name": "Clerk",
    "engine": "anthropic",
    "identity": "You are a clerk.",
    "instructions": "Be brief.",
    "responsibilities": [{"title": "Mail", "content": "Answer it."}],
    "directories": ["/data"],
    "trust": "controlled",
    "capabilities": {"memory": {}},
    "skills": ["pdf"],
}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        server.reply(Stream((Part("text", ["Fine."]),)))
        yield server


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings, server: ModelServer) -> AsyncIterator[Harness]:
    """A fleet with one worker and a clerk."""
    harness = Harness(database, redis, settings)
    engine = AnthropicEngine(api_key="the-key", base_url=server.url, max_retries=0)
    harness.engines["anthropic"] = engine
    await harness.open()
    await harness.add_agent("clerk", AGENT)
    harness.worker()
    yield harness
    await harness.close()
    await engine.close()


async def _prompt(harness: Harness, server: ModelServer, thread_id: str | None = None, **fields: Any) -> list[str]:
    """Run a turn, and return the blocks of its system prompt."""
    if thread_id is None:
        fields.setdefault("agent_id", "clerk")
    run = await harness.submit("Hello.", thread_id, **fields)
    await harness.settle(harness.workers[0])
    assert await harness.status(run.run_id) == "succeeded", dict(await harness.run(run.run_id))
    return [block["text"] for block in server.requests[-1]["system"]]


async def _remember(harness: Harness, *facts: str) -> None:
    async with harness.database.connection() as connection:
        for fact in facts:
            await save_memory(connection, harness.tenant_id, "clerk", fact)


async def _library(harness: Harness) -> None:
    await harness.database.execute(
        "INSERT INTO skills (tenant_id, name, description, skill_md, body)"
        " VALUES (:tenant_id, 'pdf', 'Reads PDFs.', '', '')",
        tenant_id=harness.tenant_id,
    )


async def _task(harness: Harness) -> str:
    """Make a task with a thread of its own, and return the thread's id."""
    await harness.database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status)"
        " VALUES (:tenant_id, 1, 'Sort the mail', 'clerk', 'person', 'active')",
        tenant_id=harness.tenant_id,
    )
    thread_id = await harness.thread("clerk")
    await harness.database.execute(
        "UPDATE threads SET task_id = 1, title = 'The </task> mail' WHERE id = :thread_id", thread_id=thread_id
    )
    return thread_id


@proves("prompt.sections")
async def test_a_whole_prompt(harness: Harness, server: ModelServer, settings: Settings):
    await _remember(harness, "Likes tea", "Lives in\nOslo </Memories>")
    await _library(harness)
    thread_id = await _task(harness)
    blocks = await _prompt(harness, server, thread_id, queue="background", metadata={"channel": "mail"})
    prompt = "".join(blocks).replace(str(settings.workspace_root), "WORKSPACE")
    assert prompt == snapshot("""\
<Identity>
You are a clerk.

You are agent clerk (Clerk).
</Identity>

<Instructions>
Be brief.

You have skills. Before you do what one of them is about, load it with skill_load and follow it.
- pdf: Reads PDFs.
</Instructions>

<Responsibilities>
## Mail
Answer it.
</Responsibilities>

<Directories>
- /data
</Directories>

<Storage>
Your working directory is WORKSPACE/ten_test/clerk
It is yours alone, and what you leave there is there in later conversations too. Keep it in order.
</Storage>

<Formatting>
Answer in Markdown. Use headings, lists and tables where they help the reader, not for their own sake.
Put code, commands and file contents into fenced blocks that name their language.
</Formatting>

<Background>
In a run that was started in the background, no person reads along.
The only ways to reach the person: `notify_user` for what the person should know now.
</Background>

<Memories>
- Likes tea
- Lives in Oslo &lt;/Memories>
</Memories>

<Task>
Task 1: Sort the mail
Status: active
Owner: clerk
</Task>\
""")


@proves("prompt.stable")
async def test_other_queues_threads_and_memories_do_not_change_the_stable_part(harness: Harness, server: ModelServer):
    await _library(harness)
    first = await _prompt(harness, server)
    await _remember(harness, "Likes tea")
    second = await _prompt(harness, server, await _task(harness), queue="background")
    assert first[0] == second[0]
    assert (len(first), len(second)) == (1, 2)


async def test_the_prompt_has_the_newest_memories_that_fit(harness: Harness, server: ModelServer):
    await _remember(harness, *(f"Fact {number}: {'x' * 1_500}" for number in range(8)))
    (_, fast) = await _prompt(harness, server)
    memories = [line[:8] for line in fast.splitlines() if line.startswith("- Fact")]
    assert memories == ["- Fact 3", "- Fact 4", "- Fact 5", "- Fact 6", "- Fact 7"]
    assert "(There are older memories: memory_list shows them.)" in fast


@pytest.mark.parametrize("capabilities", [{}, {"memory": {"tools": ["memory_save"]}}], ids=["none", "may only save"])
async def test_the_prompt_has_no_memories_without_the_permission_to_read_them(
    harness: Harness, server: ModelServer, capabilities: dict[str, Any]
):
    await _remember(harness, "Likes tea")
    await harness.add_agent("other", {"name": "Other", "engine": "anthropic", "capabilities": capabilities})
    blocks = await _prompt(harness, server, agent_id="other")
    assert "Likes tea" not in "".join(blocks)


async def test_the_prompt_has_no_memories_of_other_tenants(harness: Harness, server: ModelServer):
    await harness.database.execute("INSERT INTO tenants (id, name) VALUES ('ten_2', 'Two')")
    async with harness.database.connection() as connection:
        await save_memory(connection, "ten_2", "clerk", "Likes coffee")
    assert "coffee" not in "".join(await _prompt(harness, server))


async def test_the_ledger_is_queried_once_and_only_for_an_agent_that_needs_it(harness: Harness, server: ModelServer):
    await _remember(harness, "Likes tea")
    await harness.add_agent("plain", {"name": "Plain", "engine": "anthropic"})
    faults = harness.workers[0].faults
    await _prompt(harness, server, agent_id="plain")
    assert faults.log == ["claim", "finish"]
    faults.log.clear()
    await _prompt(harness, server)
    assert faults.log == ["claim", "other", "finish"]


async def test_the_format_of_answers_follows_the_channel(harness: Harness, server: ModelServer):
    formatting = {"sms": "At most 160 characters."}
    prompts = harness.settings.prompts.model_copy(update={"formatting": formatting})
    harness.settings = harness.settings.model_copy(update={"prompts": prompts})
    harness.workers[0] = harness.worker()
    (slow,) = await _prompt(harness, server, metadata={"channel": "sms"})
    assert "<Formatting>\nAt most 160 characters.\n</Formatting>" in slow
    (slow,) = await _prompt(harness, server, metadata={"channel": ["not", "a", "word"]})
    assert "Answer in Markdown." in slow


async def test_the_prompt_of_an_agent_with_an_output_schema_names_no_other_form(harness: Harness, server: ModelServer):
    server.reply(Stream((Part("text", ["{}"]),)))
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    await harness.add_agent("former", {"name": "Former", "engine": "anthropic", "output_schema": schema})
    assert "Formatting" not in "".join(await _prompt(harness, server, agent_id="former"))
