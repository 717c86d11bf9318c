"""The triggers capability, on real Postgres and with the real engine before a model server."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.domain.triggers.sql.definitions import MAX_AGENT_TRIGGERS
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves
from tests.support.servers.model_server import model_server

MODEL = "claude-sonnet-5"
DAILY: dict[str, Any] = {"kind": "cron", "schedule": "30 9 * * mon-fri", "prompt": "Read the news."}
LATER = "2090-05-01T09:00:00+02:00"


@pytest.fixture
async def tenants(database: Database) -> None:
    await add_tenants(database)


def caller(database: Database, tenant_id: str = "ten_1", agent_id: str = "a", **more: Any) -> ToolCaller:
    return ToolCaller(database, tenant_id, agent_id, capabilities={"triggers": {}}, **more)


async def make(agent: ToolCaller, **given: Any) -> str:
    said = await agent.call("trigger_create", **{**DAILY, **given})
    found = re.match(r"Made (trg_\w{26})", said)
    assert found is not None, said
    return found[1]


async def row(database: Database, trigger_id: str) -> dict[str, Any]:
    found = await database.fetchrow("SELECT * FROM triggers WHERE id = :trigger_id", trigger_id=trigger_id)
    assert found is not None
    return dict(found)


@pytest.mark.usefixtures("tenants")
async def test_a_trigger_is_made_listed_changed_and_deleted(database: Database) -> None:
    agent = caller(database)
    said = await agent.call("trigger_create", **DAILY, timezone="Asia/Kathmandu", title="News")
    assert re.fullmatch(
        r"Made trg_\w{26} 'News': cron 30 9 \* \* mon-fri \(Asia/Kathmandu\)\. "
        r"Next: (\S+T09:30:00\+05:45(, )?){3}\.",
        said,
    ), said
    trigger_id = said.split()[1]
    made = await row(database, trigger_id)
    assert (made["tenant_id"], made["agent_id"], made["created_by"], made["enabled"]) == ("ten_1", "a", "a", True)
    assert made["thread_id"] is None
    listed = await agent.call("trigger_list")
    assert listed.startswith(f"{trigger_id} 'News': cron")
    assert listed.endswith("\nRead the news.")
    changed = await agent.call("trigger_update", trigger_id=trigger_id, enabled=False, clear=["title"])
    assert changed == f"Changed {trigger_id}: cron 30 9 * * mon-fri (Asia/Kathmandu). It is switched off."
    assert (await row(database, trigger_id))["title"] is None
    await agent.call("trigger_update", trigger_id=trigger_id, kind="at", schedule=LATER, enabled=True)
    assert (await row(database, trigger_id))["schedule"] == "2090-05-01T07:00:00Z"
    assert await agent.call("trigger_delete", trigger_id=trigger_id) == f"Deleted {trigger_id}."
    assert await agent.call("trigger_list") == "You have no triggers."
    assert await agent.call("trigger_delete", trigger_id=trigger_id) == f"!Trigger {trigger_id!r} was deleted."


@pytest.mark.usefixtures("tenants")
@proves("triggers.own")
async def test_an_agent_sees_and_changes_its_own_triggers_only(database: Database) -> None:
    trigger_id = await make(caller(database))
    for other in (caller(database, agent_id="b"), caller(database, "ten_2")):
        unknown = f"!There is no trigger {trigger_id!r}."
        assert await other.call("trigger_list") == "You have no triggers."
        assert await other.call("trigger_update", trigger_id=trigger_id, enabled=False) == unknown
        assert await other.call("trigger_delete", trigger_id=trigger_id) == unknown
    assert (await row(database, trigger_id))["enabled"] is True


@pytest.mark.usefixtures("tenants")
async def test_a_trigger_may_continue_the_conversation_that_created_it(database: Database) -> None:
    await database.execute("INSERT INTO threads (id, tenant_id, agent_id) VALUES ('thr_1', 'ten_1', 'a')")
    agent = caller(database)
    trigger_id = await make(agent, same_thread=True)
    assert (await row(database, trigger_id))["thread_id"] == "thr_1"
    await agent.call("trigger_update", trigger_id=trigger_id, clear=["thread_id"])
    assert (await row(database, trigger_id))["thread_id"] is None


@pytest.mark.usefixtures("tenants")
async def test_an_agent_limits_how_often_it_starts(database: Database) -> None:
    agent = caller(database)
    gate = {"kind": "idle", "for_s": 600}
    trigger_id = await make(agent, overlap="queue", jitter_s=60, catchup="each", max_runs_per_day=5, gate=gate)
    made = await row(database, trigger_id)
    assert (made["overlap"], made["jitter_s"], made["catchup"]) == ("queue", 60, "each")
    assert (made["max_runs_per_day"], made["gate"]) == (5, gate)
    await agent.call("trigger_update", trigger_id=trigger_id, max_runs_per_day=9, clear=["gate"])
    assert ((await row(database, trigger_id))["max_runs_per_day"], (await row(database, trigger_id))["gate"]) == (
        9,
        None,
    )
    assert "gate.url.url" in await agent.call(
        "trigger_update", trigger_id=trigger_id, gate={"kind": "url", "url": "ftp://x"}
    )


@pytest.mark.usefixtures("tenants")
async def test_an_agent_does_not_give_a_task_to_the_orchestrations_of_a_trigger(database: Database) -> None:
    agent = caller(database)
    trigger_id = await make(agent)
    await database.execute("UPDATE triggers SET created_by = 'person', action = 'orchestrate'")
    said = await agent.call("trigger_update", trigger_id=trigger_id, prompt="Something else.")
    assert "starts orchestrations" in said
    assert (await row(database, trigger_id))["prompt"] == DAILY["prompt"]
    assert (await agent.call("trigger_update", trigger_id=trigger_id, enabled=False)).startswith("Changed")


@pytest.mark.usefixtures("tenants")
@proves("triggers.own")
async def test_an_agent_cannot_change_limits_that_a_person_set(database: Database) -> None:
    agent = caller(database)
    trigger_id = await make(agent, max_runs_per_day=5)
    await database.execute("UPDATE triggers SET created_by = 'person', paused_reason = '3 runs in a row failed.'")
    for change in ({"max_runs_per_day": 500}, {"pause_after_failures": 0}, {"clear": ["max_runs_per_day"]}):
        said = await agent.call("trigger_update", trigger_id=trigger_id, **change)
        assert said.startswith("!")
        assert "was made by 'person'" in said
    assert (await row(database, trigger_id))["max_runs_per_day"] == 5
    said = await agent.call("trigger_update", trigger_id=trigger_id, enabled=True)
    assert said.endswith("It is paused: 3 runs in a row failed. Only a person ends that.")


@pytest.mark.usefixtures("tenants")
@pytest.mark.parametrize(("trust", "may"), [("sandbox", False), ("controlled", True), ("unrestricted", True)])
@proves("triggers.own")
async def test_a_gate_requests_no_url_that_the_agent_has_no_tool_for(database: Database, trust: str, may: bool) -> None:
    agent = caller(database, trust=trust)
    gate = {"kind": "url", "url": "https://example.org/?what=it-knows", "expect_status": 200, "changed": True}
    trigger_id = await make(agent)
    for said in (
        await agent.call("trigger_create", **DAILY, gate=gate),
        await agent.call("trigger_update", trigger_id=trigger_id, gate=gate),
    ):
        assert said.startswith("!") is not may
        if not may:
            assert said == "!gate: an agent of the trust 'sandbox' has no web tools, so its gate asks no address."
    assert await database.fetchval("SELECT count(*) FROM triggers WHERE gate IS NOT NULL") == (2 if may else 0)
    # What a person gave it stays when it changes something else.
    await database.execute("UPDATE triggers SET gate = :gate WHERE id = :trigger_id", trigger_id=trigger_id, gate=gate)
    await agent.call("trigger_update", trigger_id=trigger_id, prompt="Read all of it.")
    assert (await row(database, trigger_id))["gate"] == gate


@pytest.mark.usefixtures("tenants")
async def test_the_default_zone_is_the_fleets(database: Database) -> None:
    agent = caller(database, settings=Settings(timezone="Europe/Oslo"))
    assert (await row(database, await make(agent)))["timezone"] == "Europe/Oslo"


@pytest.mark.usefixtures("tenants")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schedule": "* * * *"}, "it has 4 fields"),
        ({"schedule": "0 0 30 2 *"}, "never fires"),
        ({"schedule": "* * * * * *"}, "more than once a minute"),
        ({"schedule": "0 9 * * * */30"}, "more than once a minute"),
        ({"kind": "every", "schedule": "59"}, "60 to 31622400"),
        ({"kind": "every", "schedule": "hourly"}, "Give whole seconds"),
        ({"kind": "at", "schedule": "2020-01-01T00:00:00Z"}, "Give a time in the future"),
        ({"kind": "at", "schedule": "2090-01-01 09:00"}, "Give date, time and offset"),
        ({"kind": "sometimes"}, "kind: Input should be 'cron', 'at' or 'every'"),
        ({"timezone": "Europe/Berln"}, "Did you mean Europe/Berlin"),
        ({"prompt": ""}, "prompt: String should have at least 1"),
        ({"starts_at": "tomorrow"}, "starts_at: Input should be a valid datetime"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "never fires"),
        ({"agent_id": "b"}, "agent_id: Extra inputs"),
        ({"same_thread": True}, "thread_id: There is no thread"),
    ],
)
async def test_an_invalid_trigger_is_explained_to_the_model_and_not_stored(
    database: Database, given: dict[str, Any], says: str
) -> None:
    agent = caller(database)
    said = await agent.call("trigger_create", **{**DAILY, **given})
    assert said.startswith("!")
    assert says in said
    assert await database.fetchval("SELECT count(*) FROM triggers") == 0
    if "schedule" in given or "kind" in given:
        trigger_id = await make(agent)
        before = await row(database, trigger_id)
        assert says in await agent.call("trigger_update", trigger_id=trigger_id, **given)
        assert await row(database, trigger_id) == before


@pytest.mark.usefixtures("tenants")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Nothing to change"),
        ({"title": "x", "clear": ["title"]}, "clear: title is given as well"),
        ({"clear": ["prompt"]}, "clear.0: Input should be"),
        ({"kind": "every"}, "Give whole seconds"),
        ({"trigger_id": "trg_1'; DROP TABLE triggers"}, "trigger_id: String should match"),
    ],
)
async def test_an_invalid_change_of_a_trigger_is_explained_to_the_model(
    database: Database, given: dict[str, Any], says: str
) -> None:
    agent = caller(database)
    trigger_id = await make(agent)
    said = await agent.call("trigger_update", **{"trigger_id": trigger_id, **given})
    assert said.startswith("!")
    assert says in said


@pytest.mark.usefixtures("tenants")
async def test_an_agents_triggers_are_limited_and_listed_in_pages(database: Database) -> None:
    await database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by) "
        "SELECT 'trg_' || lpad(n::text, 26, '0'), 'ten_1', 'a', 'every', '60', 'p', 'a' "
        "FROM generate_series(1, :many::int) n",
        many=MAX_AGENT_TRIGGERS,
    )
    agent = caller(database)
    said = await agent.call("trigger_create", **DAILY)
    assert said == "!Agent 'a' has 50 triggers, which is the most. Delete some."
    page = await agent.call("trigger_list", limit=49)
    more = re.search(r"before=(trg_\w+)\.$", page)
    assert more is not None
    assert (await agent.call("trigger_list", before=more[1])).startswith(f"trg_{'1'.zfill(26)}: every 60")
    await make(caller(database, agent_id="b"))


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model) as stage:
        yield stage


async def test_the_model_creates_a_trigger_and_finds_it_in_its_next_turn(stage: Stage, database: Database) -> None:
    await stage.agent("clerk", model=MODEL, capabilities={"triggers": {}})
    given = {**DAILY, "timezone": "Europe/Berlin", "same_thread": True}
    run = await stage.run("Every morning!", calls(("trigger_create", given)), says("I will."), agent_id="clerk")
    assert (run.status, run.text) == ("succeeded", "I will.")
    (made,) = await database.fetch("SELECT * FROM triggers")
    assert (made["agent_id"], made["created_by"], made["thread_id"]) == ("clerk", "clerk", run.thread_id)
    assert (made["kind"], made["schedule"], made["timezone"]) == ("cron", "30 9 * * mon-fri", "Europe/Berlin")
    assert f"Made {made['id']}" in stage.asked(1)
    again = await stage.run(
        "Which?", calls(("trigger_list", {})), says("That one."), agent_id="clerk", thread_id=run.thread_id
    )
    assert again.status == "succeeded"
    assert f"{made['id']}: cron 30 9 * * mon-fri" in stage.asked(1)


async def test_an_error_of_the_tool_goes_back_to_the_model(stage: Stage, database: Database) -> None:
    await stage.agent("clerk", model=MODEL, capabilities={"triggers": {"tools": ["trigger_create"]}})
    wrong = {**DAILY, "schedule": "every morning"}
    run = await stage.run(
        "Every morning!",
        calls(("trigger_create", wrong)),
        calls(("trigger_create", {**DAILY, "prompt": "nul \x00"})),
        says("Done."),
        agent_id="clerk",
    )
    assert run.status == "succeeded"
    assert "it has 2 fields" in stage.asked(1)
    assert "trigger_delete" not in stage.asked(0)
    assert "input.prompt holds the character U+0000, which cannot be stored" in stage.asked(2)
    assert await database.fetchval("SELECT count(*) FROM triggers") == 0
