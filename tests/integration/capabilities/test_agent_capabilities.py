"""The capabilities `self` and `agent-management` on real Postgres."""

import asyncio
import json
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextContent

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import Gone
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.engine import InProcessMcpServer
from nova_workers.contracts.http.wire import AgentView
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.service import PERSON, Agents
from nova_workers.domain.agents.sql import records as ledger
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.domain.skills.rules.service import save_skill
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.tool_server import tool_server

Json = dict[str, Any]

MAKER: Json = {
    "name": "Maker",
    "capabilities": {"agent-management": {}, "self": {}, "memory": {"tools": ["memory_list", "memory_save"]}},
}


class Team:
    """The agents of two tenants: created by people, and calling their tools."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._registry = default_registry(database, Settings(), SystemClock(), serve=tool_server())
        self.agents = Agents(database, self._registry, CeilingRules.of(Settings()))

    async def add(self, agent_id: str, tenant: str = "ten_1", **spec: Any) -> None:
        """Create an agent as a person."""
        given = AgentSpec.model_validate({"name": agent_id, **spec})
        await self.agents.create(tenant, agent_id, given, actor=PERSON, rights=AuthorRights(trust=True, secrets=True))

    async def get(self, agent_id: str) -> AgentView:
        """Return an agent."""
        return await self.agents.get("ten_1", agent_id)

    async def call(self, who: str, tool: str, tenant: str = "ten_1", **given: Any) -> str:
        """Call a tool as an agent; an error is returned after an exclamation mark."""
        name = "self" if tool.startswith("self") else "agent-management"
        spec = AgentSpec(name="x", capabilities={name: CapabilityGrant()})
        servers = await self._registry.resolve(spec, CapabilityContext(tenant, who, "thr_1", "run_1"))
        server = servers[name]
        assert isinstance(server, InProcessMcpServer)
        async with Client(server.built()) as client:
            result = await client.call_tool(tool, given)
        (content,) = result.content
        assert isinstance(content, TextContent)
        return f"!{content.text}" if result.is_error else content.text


@pytest.fixture
async def team(database: Database) -> Team:
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_1', 'One'), ('ten_2', 'Two')")
    team = Team(database)
    await team.add("maker", **MAKER)
    return team


# self


async def test_an_agent_reads_all_of_its_own_configuration(team: Team) -> None:
    duty = {"title": "Water", "content": "The plants, on Fridays."}
    await team.add("clerk", identity="I am.", instructions="I do.", responsibilities=[duty], capabilities={"self": {}})
    said = await team.call("clerk", "self_read")
    for part in ("id: clerk", "version: 1, made by person", "trust: sandbox", "capabilities: self", "I am.", "I do."):
        assert part in said
    assert "# Water\nThe plants, on Fridays." in said


@proves("agents.self", "agents.versions")
async def test_each_change_is_a_version_with_the_agent_as_author(team: Team) -> None:
    await team.add("clerk", identity="I am.")
    assert "version 2" in await team.call("clerk", "self_set_instructions", instructions="Be brief.")
    added = await team.call("clerk", "self_add_responsibility", title=" Water ", content="plants")
    assert "version 3" in added
    assert "version 4" in await team.call("clerk", "self_update_responsibility", title="water", new_title="Feed")
    assert "version 5" in await team.call("clerk", "self_update_responsibility", title="Feed", content="cats")
    agent = await team.get("clerk")
    assert (agent.created_by, agent.spec.instructions, agent.spec.identity) == ("clerk", "Be brief.", "I am.")
    assert [(duty.title, duty.content) for duty in agent.spec.responsibilities] == [("Feed", "cats")]
    assert "version 6" in await team.call("clerk", "self_remove_responsibility", title="Feed")
    assert (await team.get("clerk")).spec.responsibilities == ()


async def test_an_equal_change_makes_no_version(team: Team) -> None:
    await team.add("clerk")
    for _ in range(2):
        assert "version 2" in await team.call("clerk", "self_set_instructions", instructions="Be brief.")
    for _ in range(2):
        assert "version 3" in await team.call("clerk", "self_add_responsibility", title="Water", content="plants")


@proves("agents.self")
async def test_concurrent_changes_are_all_kept_as_versions(team: Team) -> None:
    await team.add("clerk")
    adding = (team.call("clerk", "self_add_responsibility", title=f"Duty {at}", content="x") for at in range(8))
    said = await asyncio.gather(*adding, team.call("clerk", "self_set_instructions", instructions="Be brief."))
    assert not any(each.startswith("!") for each in said)
    agent = await team.get("clerk")
    assert agent.version == 10
    assert {duty.title for duty in agent.spec.responsibilities} == {f"Duty {at}" for at in range(8)}
    assert agent.spec.instructions == "Be brief."


async def test_instructions_that_changed_meanwhile_are_not_replaced(team: Team) -> None:
    await team.add("clerk")
    await team.call("clerk", "self_set_instructions", instructions="one", version=1)
    said = await team.call("clerk", "self_set_instructions", instructions="two", version=1)
    assert said == "!Agent 'clerk' is at version 2 and not at 1. Read it again, then change it."
    assert (await team.get("clerk")).spec.instructions == "one"


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("self_set_instructions", {"instructions": "x" * 200_001}, "instructions: String should have at most 200000"),
        ("self_set_instructions", {"instructions": 7}, "instructions: Input should be a valid string"),
        ("self_set_instructions", {"instructions": "x", "trust": "unrestricted"}, "trust: Extra inputs"),
        ("self_add_responsibility", {"title": " ", "content": "x"}, "title: String should have at least 1"),
        ("self_add_responsibility", {"title": "x" * 201, "content": "x"}, "title: String should have at most 200"),
        ("self_add_responsibility", {"title": "x", "content": "x" * 20_001}, "content: String should have at most"),
        ("self_add_responsibility", {"title": "WATER", "content": "x"}, "responsibilities.1.title: 'WATER' is the"),
        ("self_add_responsibility", {"title": "a\nb", "content": "x"}, "a title is one line"),
        ("self_update_responsibility", {"title": "Fly"}, "You have no responsibility 'Fly'. You have: 'Water'."),
        ("self_remove_responsibility", {"title": "Fly"}, "You have no responsibility 'Fly'. You have: 'Water'."),
    ],
)
async def test_an_invalid_change_is_explained_and_changes_nothing(
    team: Team, tool: str, given: Json, says: str
) -> None:
    await team.add("clerk", responsibilities=[{"title": "Water", "content": "plants"}])
    said = await team.call("clerk", tool, **given)
    assert said.startswith("!")
    assert says in said
    assert (await team.get("clerk")).version == 1


async def test_responsibilities_are_limited(team: Team) -> None:
    await team.add("clerk", responsibilities=[{"title": str(at), "content": ""} for at in range(100)])
    said = await team.call("clerk", "self_add_responsibility", title="One more", content="x")
    assert said == "!responsibilities: there are 101; an agent has at most 100."


async def test_text_that_the_database_refuses_is_sanitized_and_kept(team: Team) -> None:
    await team.add("clerk")
    assert "version 2" in await team.call("clerk", "self_set_instructions", instructions="a\x00b")
    assert (await team.get("clerk")).spec.instructions == "a\ufffdb"


# agent-management


async def test_an_agent_makes_another_which_starts_in_the_sandbox(team: Team) -> None:
    said = await team.call(
        *("maker", "agent_create"),
        id="scout",
        name="Scout",
        description="Looks around.",
        identity="Curious.",
        instructions="Look.",
        responsibilities=[{"title": "Look", "content": "around"}],
        capabilities={"memory": ["memory_list"], "self": None},
        model="haiku",
        subagents={"eye": {"description": "Sees.", "prompt": "See.", "tools": ["memory_list"]}},
    )
    assert said.startswith("Made agent 'scout', version 1. It is in the sandbox")
    agent = await team.get("scout")
    assert (agent.created_by, agent.spec.trust, agent.spec.model) == ("maker", "sandbox", "haiku")
    assert agent.spec.capabilities["memory"].tools == ("memory_list",)
    assert agent.spec.capabilities["self"].tools is None
    assert agent.spec.subagents["eye"].prompt == "See."


async def test_an_agent_changes_and_deletes_another(team: Team) -> None:
    await team.add(
        "scout", model="opus", responsibilities=[{"title": "A", "content": "a"}, {"title": "B", "content": "b"}]
    )
    said = await team.call(
        *("maker", "agent_update"),
        id="scout",
        name="Scout",
        model="default",
        set_responsibilities=[{"title": "b", "content": "new"}, {"title": "C", "content": "c"}],
        remove_responsibilities=["A"],
        capabilities={"memory": None},
        version=1,
    )
    assert said == "Agent 'scout' is at version 2."
    spec = (await team.get("scout")).spec
    assert [(duty.title, duty.content) for duty in spec.responsibilities] == [("b", "new"), ("C", "c")]
    assert (spec.name, spec.model, spec.capabilities["memory"].tools) == ("Scout", None, ("memory_list", "memory_save"))
    stale = await team.call("maker", "agent_update", id="scout", name="Other", version=1)
    assert "at version 2 and not at 1" in stale
    assert await team.call("maker", "agent_delete", id="scout") == "Deleted agent 'scout'."
    with pytest.raises(Gone):
        await team.get("scout")


async def test_of_other_agents_responsibilities_only_titles_are_shown(team: Team) -> None:
    await team.add(
        "clerk",
        responsibilities=[{"title": "Water", "content": "a secret"}],
        capabilities={"memory": {"tools": ["memory_list"]}},
    )
    said = await team.call("maker", "agent_get", id="clerk")
    assert "responsibilities: Water" in said
    assert "capabilities: memory (only memory_list)" in said
    assert "secret" not in said
    assert "secret" not in await team.call("maker", "agent_list")


async def test_agents_are_listed_page_by_page(team: Team) -> None:
    for name in ("a", "b"):
        await team.add(name, description=f"Does {name}.")
    first = await team.call("maker", "agent_list", limit=2)
    assert first.splitlines() == [
        "a (version 1, sandbox): a. Does a.",
        "b (version 1, sandbox): b. Does b.",
        "There may be more: ask with after=b.",
    ]
    rest = await team.call("maker", "agent_list", after="b")
    assert rest == "maker (version 1, sandbox): Maker. No description."


@proves("agents.rights")
@pytest.mark.parametrize(
    "field",
    [
        {"trust": "unrestricted"},
        {"trust": "sandbox"},
        {"permissions": {}},
        {"directories": ["/"]},
        {"engine": "scripted"},
        {"engine_config": {}},
        {"cost_budget_usd": 100},
        {"token_budget": 100},
        {"max_turns": 100},
    ],
)
async def test_fields_that_only_people_set_are_refused_for_every_agent(team: Team, field: Json) -> None:
    await team.add("scout")
    (name,) = field
    made = await team.call("maker", "agent_create", id="new", name="New", **field)
    changed = await team.call("maker", "agent_update", id="scout", **field)
    for said in (made, changed):
        assert said.startswith("!")
        assert f"{name} is set by people only" in said
    assert (await team.get("scout")).version == 1
    assert (await team.call("maker", "agent_get", id="new")).startswith("!There is no agent 'new'")


@proves("agents.rights")
async def test_an_agent_grants_only_what_it_has(team: Team) -> None:
    await team.add("scout")
    for wish, says in (
        ({"memory": ["memory_delete"]}, "you can only grant the tools that you have yourself"),
        ({"notes": None}, "you can only grant what you have yourself"),
        ({"teleport": None}, "you can only grant what you have yourself"),
    ):
        for said in (
            await team.call("maker", "agent_create", id="new", name="New", capabilities=wish),
            await team.call("maker", "agent_update", id="scout", capabilities=wish),
        ):
            assert said.startswith("!capabilities.")
            assert says in said
    assert (await team.get("scout")).version == 1


async def test_grants_from_people_may_be_kept_or_revoked(team: Team) -> None:
    await team.add("scout", capabilities={"memory": {"tools": ["memory_delete", "memory_list"]}})
    said = await team.call("maker", "agent_update", id="scout", capabilities={"memory": ["memory_delete"]})
    assert "version 2" in said
    assert (await team.get("scout")).spec.capabilities["memory"].tools == ("memory_delete",)
    assert "version 3" in await team.call("maker", "agent_update", id="scout", capabilities={})


async def test_an_agent_cannot_grant_what_was_revoked_from_it(team: Team) -> None:
    spec = {**MAKER, "capabilities": {"agent-management": {}}}
    await team.agents.replace("ten_1", "maker", AgentSpec.model_validate(spec), actor=PERSON)
    said = await team.call("maker", "agent_create", id="scout", name="Scout", capabilities={"memory": None})
    assert said == "!capabilities.memory: you can only grant what you have yourself, which is agent-management."


@proves("agents.rights")
async def test_an_agent_inherits_the_bounds_of_its_creator(team: Team) -> None:
    bounds: Json = {
        "permissions": {"approvals": [{"tool": "memory_*", "decision": "ask"}]},
        "cost_budget_usd": 0.5,
        "token_budget": 1000,
        "max_turns": 7,
        "trust": "controlled",
        "directories": ["/srv"],
    }
    await team.add("bound", **{**MAKER, **bounds})
    await team.call("bound", "agent_create", id="scout", name="Scout", capabilities={"memory": None})
    spec = (await team.get("scout")).spec.model_dump(mode="json", exclude_unset=False)
    assert spec["permissions"]["approvals"][0]["decision"] == "ask"
    assert (spec["cost_budget_usd"], spec["token_budget"], spec["max_turns"]) == (0.5, 1000, 7)
    assert (spec["trust"], spec["directories"], spec["engine"]) == ("sandbox", [], None)
    await team.add("free")
    said = await team.call("bound", "agent_update", id="free", capabilities={"memory": None})
    assert "need a person's permission, and those of this agent would not" in said


@proves("agents.rights")
async def test_an_agent_cannot_change_one_of_more_trust(team: Team) -> None:
    await team.add("chief", trust="controlled")
    for said in (
        await team.call("maker", "agent_update", id="chief", instructions="Obey me."),
        await team.call("maker", "agent_delete", id="chief"),
    ):
        assert "you can only change agents of no more trust than your own" in said
    assert (await team.get("chief")).version == 1


_SERVER: Json = {"type": "http", "url": "https://tools.example.com/mcp"}
DEPUTY: Json = {
    "name": "Deputy",
    "trust": "controlled",
    "native_tools": ["Read", "Glob"],
    "directories": ["/srv/data"],
    "skills": ["rhyme"],
    "capabilities": {
        "agent-management": {},
        "agents": {"config": {"may_ask": ["clerk", "scribe"]}},
        "secrets": {"tools": ["secret_get"], "config": {"names": ["MAIL_*", "KEY_?"]}},
        "mcp": {"config": {"servers": {"files": _SERVER}}},
        "memory": {},
    },
    "permissions": {"approvals": [{"tool": "note_*", "decision": "ask"}]},
}
"""An agent with some of each right."""

_BOUND: Json = {"permissions": DEPUTY["permissions"]}
WITHIN: list[Json] = [
    {},
    {"trust": "controlled", "native_tools": ["Read"], "directories": ["/srv/data/in"], "skills": ["rhyme"]},
    {"capabilities": {"agents": {"config": {"may_ask": ["clerk"]}}, "memory": {"tools": ["memory_list"]}}},
    {"capabilities": {"secrets": {"tools": ["secret_get"], "config": {"names": ["MAIL_?", "MAIL_A*", "KEY_1"]}}}},
    {"capabilities": {"mcp": {"config": {"servers": {"files": _SERVER}}}}, **_BOUND},
]
"""Configurations with no right that the deputy lacks."""
BEYOND: list[tuple[Json, str]] = [
    ({"trust": "controlled", "native_tools": ["Read", "Write"]}, "the tool Write"),
    ({"directories": ["/srv/data", "/srv/database"]}, "the directory '/srv/database'"),
    ({"skills": ["rhyme", "reason"]}, "the skill 'reason'"),
    ({"capabilities": {"triggers": {}}}, "the capability 'triggers'"),
    ({"capabilities": {"agents": {}}}, "configuration of the capability 'agents'"),
    ({"capabilities": {"agents": {"config": {"may_ask": ["chief"]}}}}, "configuration of the capability 'agents'"),
    ({"capabilities": {"secrets": {"config": {"names": ["KEY_1"]}}}}, "tools or a configuration of the capability"),
    *(
        (
            {"capabilities": {"secrets": {"tools": ["secret_get"], "config": {"names": [name]}}}},
            "configuration of the capability 'secrets'",
        )
        for name in ("*", "KEY_*", "M*", "KEY_12")
    ),
    (
        {
            "capabilities": {
                "mcp": {"config": {"servers": {"files": {**_SERVER, "headers": {"X-Key": "${secret:OTHER}"}}}}}
            },
            **_BOUND,
        },
        "configuration of the capability 'mcp'",
    ),
]
"""Configurations with one such right."""


@proves("agents.rights")
async def test_what_another_agent_does_is_written_only_with_every_right_of_it(team: Team, database: Database) -> None:
    async with database.transaction() as connection:
        for name in ("rhyme", "reason"):
            await save_skill(connection, "ten_1", name, f"---\nname: {name}\ndescription: x\n---\nx", ())
    await team.add("deputy", **DEPUTY)
    for at, spec in enumerate(WITHIN):
        await team.add(f"within-{at}", **spec)
        said = await team.call("deputy", "agent_update", id=f"within-{at}", instructions="Be brief.")
        assert "is at version 2" in said, said
    texts: list[Json] = [
        {"instructions": "Obey me."},
        {"identity": "My servant."},
        {"set_responsibilities": [{"title": "Obey", "content": "me"}]},
        {"subagents": {"hand": {"description": "Mine.", "prompt": "Obey me."}}},
    ]
    for at, (spec, lacking) in enumerate(BEYOND):
        await team.add(f"beyond-{at}", **spec)
        said = await team.call("deputy", "agent_update", id=f"beyond-{at}", **texts[at % len(texts)])
        assert said.startswith("!You may not write what this agent does"), (spec, said)
        assert lacking in said
        assert (await team.get(f"beyond-{at}")).version == 1


@proves("agents.rights")
async def test_an_agent_takes_rights_that_it_lacks_away_before_it_writes(team: Team) -> None:
    await team.add("scout", capabilities={"triggers": {}, "memory": {"tools": ["memory_list"]}})
    said = await team.call("maker", "agent_update", id="scout", capabilities={"memory": None}, instructions="Look.")
    assert "is at version 2" in said
    assert (await team.get("scout")).spec.capabilities.keys() == {"memory"}


@proves("agents.rights")
async def test_an_agent_with_bounded_calls_writes_none_whose_calls_are_free(team: Team) -> None:
    bound: Json = {**MAKER, "permissions": {"approvals": [{"tool": "memory_*", "decision": "never"}]}}
    await team.add("bound", **bound)
    await team.add("free", capabilities={"memory": {"tools": ["memory_list"]}})
    await team.add("bare")
    said = await team.call("bound", "agent_update", id="free", instructions="List all.")
    assert "calls without the permission that yours need" in said
    assert "version 2" in await team.call("bound", "agent_update", id="bare", instructions="Rest.")
    shell: Json = {**MAKER, "trust": "unrestricted", "permissions": {"deny_commands": ["git push*"]}}
    await team.add("shell", **shell)
    await team.add("other-shell", trust="unrestricted")
    said = await team.call("shell", "agent_update", id="other-shell", instructions="git push")
    assert "shell commands with other permissions" in said


@proves("agents.rights")
async def test_an_agent_grants_only_skills_that_it_has(team: Team, database: Database) -> None:
    async with database.transaction() as connection:
        for name in ("rhyme", "reason"):
            await save_skill(connection, "ten_1", name, f"---\nname: {name}\ndescription: x\n---\nx", ())
    await team.add("poet", **MAKER, skills=["rhyme"])
    await team.add("scout", skills=["reason"])
    for said in (
        await team.call("poet", "agent_create", id="new", name="New", skills=["rhyme", "reason"]),
        await team.call("maker", "agent_update", id="scout", skills=["reason", "rhyme"]),
    ):
        assert "you can only grant skills that you have yourself" in said
    assert "version 2" in await team.call("poet", "agent_update", id="scout", skills=["reason", "rhyme"])
    assert "version 1" in await team.call("poet", "agent_create", id="new", name="New", skills=["rhyme"])


async def test_an_agent_does_not_manage_itself(team: Team) -> None:
    for said in (
        await team.call("maker", "agent_update", id="maker", identity="King"),
        await team.call("maker", "agent_delete", id="maker"),
    ):
        assert said.startswith("!You cannot manage yourself.")


async def test_another_tenants_agents_are_not_found(team: Team) -> None:
    await team.add("maker", "ten_2", **MAKER)
    await team.add("scout")
    assert await team.call("maker", "agent_list", "ten_2") == "maker (version 1, sandbox): Maker. No description."
    for tool, given in (("agent_get", {}), ("agent_update", {"name": "x"}), ("agent_delete", {})):
        assert await team.call("maker", tool, "ten_2", id="scout", **given) == "!There is no agent 'scout'."
    assert (await team.get("scout")).version == 1


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("agent_create", {"id": "Bad Id", "name": "x"}, "id: String should match pattern"),
        ("agent_create", {"id": "person", "name": "x"}, "id: 'person' is a word"),
        ("agent_create", {"id": "maker", "name": "x"}, "There is an agent 'maker' already"),
        ("agent_create", {"id": "new"}, "name: Field required"),
        ("agent_create", {"id": "new", "name": " "}, "name: String should have at least 1"),
        ("agent_create", {"id": "new", "name": "x", "skills": ["juggling"]}, "skills.0: you can only grant skills"),
        ("agent_create", {"id": "new", "name": "x", "capabilities": ["self"]}, "capabilities: Input should be"),
        ("agent_create", {"id": "new", "name": "x", "nickname": "y"}, "nickname: Extra inputs"),
        (
            "agent_create",
            {"id": "new", "name": "x", "responsibilities": [{"title": "a", "content": ""}] * 2},
            "responsibilities.1.title",
        ),
        (
            "agent_create",
            {"id": "new", "name": "x", "subagents": {"a": {"description": "x", "prompt": "x", "tools": ["fly"]}}},
            "subagents.a.tools.0: the agent has no tool 'fly'",
        ),
        ("agent_update", {"id": "nobody"}, "There is no agent 'nobody'"),
        ("agent_update", {"id": "scout", "remove_responsibilities": ["x"]}, "it has none with the title 'x'"),
        (
            "agent_update",
            {"id": "scout", "set_responsibilities": [{"title": "a", "content": ""}, {"title": "A", "content": ""}]},
            "set_responsibilities: two have the same title",
        ),
        ("agent_delete", {"id": "nobody"}, "There is no agent 'nobody'"),
        ("agent_get", {"id": "x\x00"}, "id: String should match pattern"),
        ("agent_list", {"limit": 1_000}, "limit: Input should be less than"),
    ],
)
async def test_invalid_arguments_are_explained_to_the_model(team: Team, tool: str, given: Json, says: str) -> None:
    await team.add("scout")
    said = await team.call("maker", tool, **given)
    assert said.startswith("!"), said
    assert says in said
    assert (await team.get("scout")).version == 1


async def test_a_deleted_manager_manages_nothing(team: Team, database: Database) -> None:
    await team.add("scout")
    async with database.connection() as connection:
        await ledger.delete_agent(connection, "ten_1", "maker")
    assert await team.call("maker", "agent_delete", id="scout") == "!Agent 'maker' was deleted."


def test_the_tools_describe_their_arguments(database: Database) -> None:
    registry = default_registry(database, Settings(), SystemClock(), serve=tool_server())
    found = {item.name: item for item in registry.discover()}
    assert [(tool.name, tool.read_only) for tool in found["self"].tools] == [
        ("self_read", True),
        ("self_set_instructions", False),
        ("self_add_responsibility", False),
        ("self_update_responsibility", False),
        ("self_remove_responsibility", False),
    ]
    assert [(tool.name, tool.read_only) for tool in found["agent-management"].tools] == [
        ("agent_list", True),
        ("agent_get", True),
        ("agent_create", False),
        ("agent_update", False),
        ("agent_delete", False),
    ]
    assert json.dumps(found["agent-management"].config_schema)
