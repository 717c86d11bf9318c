"""Skills on demand, on real Postgres and with the real engine before a model server."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.skills import SkillFile
from nova_workers.domain.skills.rules.service import remove_skill, save_skill
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves
from tests.support.servers.model_server import model_server

MODEL = "claude-sonnet-5"
FILES = (SkillFile("words/list.txt", "bee, tea, sm\u00f8rrebr\u00f8d".encode()), SkillFile("logo.png", b"\x89PNG\xff"))


def skill_md(name: str, body: str = "Always greet in rhyme.") -> str:
    return f"---\nname: {name}\ndescription: Greets people in {name}.\n---\n\n{body}\n"


async def add_skill(
    database: Database, name: str, body: str = "Always greet in rhyme.", files: Sequence[SkillFile] = ()
) -> None:
    tenants = [row["id"] for row in await database.fetch("SELECT id FROM tenants ORDER BY id LIMIT 1")]
    async with database.transaction() as connection:
        await save_skill(connection, tenants[0], name, skill_md(name, body), files)


def caller(database: Database, *skills: str, **spec: Any) -> ToolCaller:
    return ToolCaller(database, skills=list(skills), capabilities={}, **spec)


@pytest.fixture
async def tenants(database: Database) -> None:
    await add_tenants(database)


@pytest.mark.usefixtures("tenants")
async def test_a_skill_is_loaded_with_the_names_of_its_files_which_are_read_one_by_one(database: Database) -> None:
    await add_skill(database, "rhyme", files=FILES)
    agent = caller(database, "rhyme")
    assert await agent.call("skill_load", name="rhyme") == snapshot("""\
Always greet in rhyme.

Files of this skill, which skill_read_file reads:
- logo.png (5 bytes)
- words/list.txt (22 bytes)\
""")
    assert await agent.call("skill_read_file", name="rhyme", path="words/list.txt") == "bee, tea, sm\u00f8rrebr\u00f8d"
    assert await agent.call("skill_read_file", name="rhyme", path="logo.png") == (
        "!'logo.png' is not text; it has 5 bytes."
    )
    assert await agent.call("skill_read_file", name="rhyme", path="../x") == (
        "!Skill 'rhyme' has no file '../x'; it has 'logo.png', 'words/list.txt'."
    )


@pytest.mark.usefixtures("tenants")
async def test_a_long_file_is_read_piece_by_piece(database: Database) -> None:
    text = "".join(chr(97 + at % 26) for at in range(60_000))
    await add_skill(database, "rhyme", files=[SkillFile("long.txt", text.encode())])
    agent = caller(database, "rhyme")
    first = await agent.call("skill_read_file", name="rhyme", path="long.txt")
    piece, _, more = first.partition("\n\n")
    assert more == "[There is more: read on with offset=50000.]"
    rest = await agent.call("skill_read_file", name="rhyme", path="long.txt", offset=50_000)
    assert piece + rest == text
    assert (await agent.call("skill_read_file", name="rhyme", path="long.txt", offset=60_000)).startswith("!'long.txt'")


@pytest.mark.usefixtures("tenants")
@proves("skills.own")
async def test_an_agent_has_only_its_own_skills(database: Database) -> None:
    await add_skill(database, "rhyme")
    await add_skill(database, "whistle")
    agent = caller(database, "rhyme")
    assert await agent.call("skill_load", name="whistle") == "!You have no skill 'whistle'. You have rhyme."
    assert (await agent.call("skill_read_file", name="whistle", path="a")).startswith("!You have no skill")
    stranger = ToolCaller(database, "ten_2", skills=["rhyme"], capabilities={})
    assert (await stranger.call("skill_load", name="rhyme")).startswith("!Skill 'rhyme' was removed")


@pytest.mark.usefixtures("tenants")
async def test_an_assigned_skill_that_was_deleted_is_a_tool_error(database: Database) -> None:
    await add_skill(database, "rhyme")
    await remove_skill(database, "ten_1", "rhyme")
    said = await caller(database, "rhyme").call("skill_load", name="rhyme")
    assert said == "!Skill 'rhyme' was removed from the library. Go on without it."


@pytest.mark.usefixtures("tenants")
@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("skill_load", {}, "name: Field required"),
        ("skill_load", {"name": "a\x00b"}, "name: String should match"),
        ("skill_load", {"name": 5}, "name: Input should be a valid string"),
        ("skill_load", {"name": "rhyme", "more": 1}, "more: Extra inputs"),
        ("skill_read_file", {"name": "rhyme", "path": ""}, "path: String should have at least 1"),
        ("skill_read_file", {"name": "rhyme", "path": "a\x00"}, "path: String should match"),
        ("skill_read_file", {"name": "rhyme", "path": "a", "offset": -1}, "offset: Input should be greater"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, tool: str, given: dict[str, Any], says: str
) -> None:
    said = await caller(database, "rhyme").call(tool, **given)
    assert said.startswith("!")
    assert says in said


@pytest.mark.parametrize(
    ("spec", "offered"),
    [
        ({"skills": ["rhyme"]}, True),
        ({"skills": []}, False),
        ({"skills": ["rhyme"], "engine": "scripted"}, True),
        ({"skills": ["rhyme"], "engine": "claude_agent", "trust": "controlled"}, False),
        ({"skills": ["rhyme"], "engine": "claude_agent", "trust": "sandbox"}, True),
    ],
)
async def test_the_tools_are_offered_to_agents_whose_skills_are_not_files(spec: dict[str, Any], offered: bool) -> None:
    database = PostgresDatabase("postgresql://nobody@127.0.0.1:1/none", pool_size=1)
    agent = ToolCaller(database, capabilities={}, **spec)
    assert ("skills" in await agent.servers()) is offered


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model) as stage:
        yield stage


@proves("skills.on-demand")
async def test_the_model_gets_names_and_descriptions_and_loads_a_skill(stage: Stage, database: Database) -> None:
    await add_skill(database, "rhyme", "Greet so: hello, fellow!", FILES)
    await add_skill(database, "whistle", "Whistle loudly.")
    await stage.agent("poet", model=MODEL, skills=["rhyme"])
    run = await stage.run(
        "hi",
        calls(("skill_load", {"name": "rhyme"})),
        calls(("skill_read_file", {"name": "rhyme", "path": "words/list.txt"})),
        says("Hello, fellow!"),
        agent_id="poet",
    )
    assert (run.status, run.text) == ("succeeded", "Hello, fellow!")
    assert "rhyme: Greets people in rhyme." in stage.asked(0)
    assert "whistle" not in stage.asked(0)
    assert "Greet so" not in stage.asked(0)
    assert "Greet so: hello, fellow!" in stage.asked(1)
    assert "bee, tea" not in stage.asked(1)
    assert "bee, tea" in stage.asked(2)
    again = await stage.run("again", says("Hello!"), agent_id="poet", thread_id=run.thread_id)
    assert again.status == "succeeded"
    assert "Greet so: hello, fellow!" in stage.asked(0)


async def test_the_prompt_of_an_agent_without_skills_has_no_skills(stage: Stage, database: Database) -> None:
    await add_skill(database, "rhyme")
    await stage.agent("plain", model=MODEL)
    await stage.run("hi", says("Hello!"), agent_id="plain")
    assert "rhyme" not in stage.asked(0)
    assert "skill_load" not in stage.asked(0)
