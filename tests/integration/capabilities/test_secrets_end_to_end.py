"""A model reads a secret and uses it; what was kept, sent to followers or logged does not have it in any form."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis

from api.doors.items import items_of
from nova_workers.base.config import Settings
from nova_workers.contracts.waits import Answer
from nova_workers.domain.threads.sql.items import load_run_contents
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.requirements import proves
from tests.support.harness.logs import recorded_logs
from tests.support.servers.mcp_http_server import McpHttpServer
from tests.support.servers.model_server import Part, Stream, model_server

VALUE = 'tok-"7f3a/91+c\\e x'
HEADER = "hdr-5d1e8a"
NAMES = ("TOKEN", "HEADER")


def found(text: str) -> list[str]:
    """Return the forms of the values that stand in a text."""
    forms = [
        form
        for value in (VALUE, HEADER)
        for form in (
            value,
            json.dumps(value)[1:-1],
            json.dumps(json.dumps(value)[1:-1])[1:-1],
            quote(value, safe=""),
            b64encode(value.encode()).decode()[:-3],
            b64encode(f"user:{value}".encode()).decode()[8:-4],
        )
    ]
    return [form for form in forms if form in text]


@pytest.fixture
async def http() -> AsyncIterator[McpHttpServer]:
    async with McpHttpServer() as server:
        yield server


@pytest.fixture
def logs() -> Iterator[StringIO]:
    with recorded_logs() as stream:
        yield stream


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings, http: McpHttpServer) -> AsyncIterator[Stage]:
    async with (
        model_server() as model,
        open_stage(database, redis, settings, model, mcp_allow_hosts=[http.host]) as stage,
    ):
        await stage.secrets.put(stage.harness.tenant_id, "TOKEN", VALUE, by="person")
        await stage.secrets.put(stage.harness.tenant_id, "HEADER", HEADER, by="person")
        server = {"type": "http", "url": http.url, "headers": {"Authorization": "Bearer ${secret:HEADER}"}}
        await stage.agent(
            "clerk",
            capabilities={
                "secrets": {"config": {"names": ["TOK*"]}},
                "mcp": {"config": {"servers": {"post": server}}, "tools": ["deliver"]},
                "memory": {},
            },
        )
        yield stage


@proves("secrets.hidden")
async def test_a_secret_reaches_the_server_and_nothing_else(stage: Stage, http: McpHttpServer, logs: StringIO) -> None:
    encoded = b64encode(f"user:{VALUE}".encode()).decode()
    thought = Stream(
        (
            Part("thinking", ["The value is ", VALUE[:5], VALUE[5:], "."]),
            Part("text", ["I have ", VALUE[:4], VALUE[4:9], VALUE[9:], " now.", VALUE[:3]]),
            Part("tool", ("toolu_1", "mcp__post__deliver", {"text": f"key={VALUE}"})),
            Part("tool", ("toolu_2", "memory_save", {"content": f"It is {VALUE}"})),
        )
    )
    run = await stage.run(
        f"Use the token. {'And well. ' * 3}",
        calls(("secret_list", {}), ("secret_get", {"name": "TOKEN"})),
        thought,
        says("Sent ", *VALUE, f" and {encoded} and ", quote(VALUE, safe=""), " and ", HEADER, "!", VALUE[:6]),
        agent_id="clerk",
    )
    assert run.status == "succeeded", run.error

    # It was used, and while the turn went on the model knew it.
    assert http.delivered == [f"key={VALUE}"]
    assert http.headers[0]["authorization"] == f"Bearer {HEADER}"
    assert json.dumps(VALUE)[1:-1] in stage.asked(1)
    assert "idle" not in {tool["name"] for tool in stage.model.requests[0]["tools"]}

    # And nowhere is it kept, shown or logged.
    dump = await stage.dump()
    assert found(dump) == []
    assert found(logs.getvalue()) == []
    async with stage.harness.database.connection() as connection:
        turn = await load_run_contents(connection, stage.harness.tenant_id, run.id)
    assert turn is not None
    shown = repr(items_of(turn))
    assert found(shown) == [], "a door shows it"
    assert "[secret:TOKEN]" in shown
    assert "[secret:TOKEN]" in logs.getvalue(), "the model's SDK logs its requests at this level"
    assert "[secret:TOKEN]" in dump
    assert "got key=[secret:TOKEN] with Bearer [secret:HEADER]" in dump
    assert await stage.harness.database.fetchval("SELECT content FROM memories") == "It is [secret:TOKEN]"
    tokens = await stage.tokens()
    assert tokens.startswith(f"I have [secret:TOKEN] now.{VALUE[:3]}Sent [secret:TOKEN] and dXN")
    assert tokens.endswith(f" and [secret:TOKEN] and [secret:HEADER]!{VALUE[:6]}")
    assert run.text is not None
    assert run.text in tokens


async def test_the_next_turn_sees_a_placeholder_and_reads_the_secret_again(stage: Stage, http: McpHttpServer) -> None:
    first = await stage.run(
        "Read it", calls(("secret_get", {"name": "TOKEN"})), says(f"It is {VALUE}"), agent_id="clerk"
    )
    assert first.status == "succeeded"
    second = await stage.run(
        "Send it",
        calls(("secret_get", {"name": "TOKEN"})),
        calls(("mcp__post__deliver", {"text": VALUE})),
        says("Done"),
        agent_id="clerk",
        thread_id=first.thread_id,
    )
    assert second.status == "succeeded"
    assert "[secret:TOKEN]" in stage.asked(0)
    assert found(stage.asked(0)) == []
    assert http.delivered == [VALUE]
    assert found(await stage.dump()) == []


@proves("secrets.restored")
async def test_a_call_that_waited_for_permission_is_made_with_the_value(
    stage: Stage, http: McpHttpServer, database: Database
) -> None:
    harness = stage.harness
    spec = await database.fetchval("SELECT spec FROM agents WHERE id = 'clerk'")
    asks = {"approvals": [{"tool": "mcp__post__deliver", "decision": "ask"}]}
    await stage.agent("careful", **{**spec, "permissions": asks})
    waiting = await stage.run(
        "Send it",
        calls(("secret_get", {"name": "TOKEN"})),
        calls(("mcp__post__deliver", {"text": f"key={VALUE}"})),
        says("Done"),
        agent_id="careful",
    )
    assert waiting.status == "waiting", waiting.error
    assert http.delivered == []
    assert found(await stage.dump()) == []
    await harness.waiting.answer(harness.tenant_id, waiting.id, None, Answer(approve=True))
    await harness.settle(harness.worker(keeper=True))
    assert await harness.status(waiting.id) == "succeeded"
    assert http.delivered == [f"key={VALUE}"]
    assert found(await stage.dump()) == []


async def test_a_placeholder_reveals_no_secret_that_the_model_may_not_read(stage: Stage) -> None:
    harness = stage.harness
    await stage.agent(
        "lister",
        capabilities={"secrets": {"tools": ["secret_list"]}},
        trust="controlled",
        permissions={"approvals": [{"tool": "Write", "decision": "ask"}]},
    )
    write = calls(("Write", {"file_path": "key.txt", "content": "key=[secret:TOKEN]"}))
    waiting = await stage.run("Write it down", write, says("Done"), agent_id="lister")
    await harness.waiting.answer(harness.tenant_id, waiting.id, None, Answer(approve=True))
    await harness.settle(harness.worker(keeper=True))
    (written,) = harness.settings.workspace_root.rglob("key.txt")
    assert written.read_text() == "key=[secret:TOKEN]"


async def test_a_value_that_the_model_sets_is_redacted_from_then_on(stage: Stage, logs: StringIO) -> None:
    made = "made-by-the-model-1"
    run = await stage.run(
        "Make a token",
        calls(("secret_update", {"name": "TOK_NEW", "value": made, "description": "made"})),
        calls(("secret_get", {"name": "TOK_NEW"})),
        says("It is ", made[:7], made[7:]),
        agent_id="clerk",
    )
    assert (run.status, run.text) == ("succeeded", "It is [secret:TOK_NEW]")
    assert made in stage.asked(2)
    assert await stage.secrets.get(stage.harness.tenant_id, "TOK_NEW") == made
    assert made not in await stage.dump()
    assert made not in logs.getvalue()
    by = await stage.harness.database.fetchval("SELECT updated_by FROM secrets WHERE name = 'TOK_NEW'")
    assert by == "clerk"


async def test_secrets_outside_the_grant_are_neither_listed_nor_read_nor_set(stage: Stage) -> None:
    run = await stage.run(
        "Look",
        calls(
            ("secret_list", {}),
            ("secret_get", {"name": "HEADER"}),
            ("secret_update", {"name": "OTHER", "value": "some value"}),
        ),
        says("No"),
        agent_id="clerk",
    )
    assert run.status == "succeeded"
    results = {block["tool_use_id"]: block for block in stage.model.requests[1]["messages"][-1]["content"]}
    texts = {key: json.dumps(block["content"]) for key, block in results.items()}
    assert "TOKEN" in texts["toolu_secret_list"]
    assert "HEADER" not in texts["toolu_secret_list"]
    for refused in ("toolu_secret_get", "toolu_secret_update"):
        assert results[refused]["is_error"]
        assert "You may use the secrets TOK*" in texts[refused]
    assert HEADER not in stage.asked(1)
    names = await stage.harness.database.fetch("SELECT name FROM secrets ORDER BY name")
    assert tuple(row["name"] for row in names) == tuple(sorted(NAMES))


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("secret_get", {"name": "token"}, "name: String should match pattern"),
        ("secret_get", {"name": "TOK_NONE"}, "There is no secret 'TOK_NONE'"),
        ("secret_get", {}, "name: Field required"),
        ("secret_update", {"name": "TOK_X", "value": "abc"}, "fewer than 6 characters"),
        ("secret_update", {"name": "TOK_X", "value": "[secret:TOKEN]"}, "not the secret itself"),
        ("secret_update", {"name": "TOK_X"}, "value: Field required"),
        ("secret_list", {"all": True}, "all: Extra inputs"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    stage: Stage, tool: str, given: dict[str, Any], message: str
) -> None:
    run = await stage.run("Try", calls((tool, given)), says("No"), agent_id="clerk")
    assert run.status == "succeeded"
    assert message in stage.asked(1)


async def test_a_missing_secret_ends_the_run_with_its_name(stage: Stage) -> None:
    await stage.secrets.delete(stage.harness.tenant_id, "HEADER")
    run = await stage.run("Go", says("never"), agent_id="clerk")
    assert run.status == "failed"
    assert "There is no secret 'HEADER'" in str(run.error)
    assert stage.model.requests == []


async def test_an_agent_without_secrets_makes_no_query_for_them(stage: Stage, database: Database) -> None:
    await stage.agent("plain", capabilities={"memory": {}})
    await database.execute("DROP TABLE secrets")
    run = await stage.run("Hello", says("Hello ", VALUE), agent_id="plain")
    assert (run.status, run.text) == ("succeeded", f"Hello {VALUE}")


async def test_a_failing_model_server_does_not_reveal_the_secret(stage: Stage, logs: StringIO) -> None:
    run = await stage.run(
        "Go",
        calls(("secret_get", {"name": "TOKEN"})),
        Stream((Part("text", ["so far ", VALUE[:6], VALUE[6:]]), Part("cut"))),
        agent_id="clerk",
    )
    # Held, since the provider may answer later.
    assert run.status == "queued"
    assert run.hold is not None
    assert found(await stage.dump()) == []
    assert found(logs.getvalue()) == []


async def test_tenants_do_not_share_secrets(stage: Stage, database: Database) -> None:
    await stage.secrets.delete(stage.harness.tenant_id, "TOKEN")
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_2', 'Two')")
    await stage.secrets.put("ten_2", "TOKEN", VALUE, by="person")
    run = await stage.run("Read", calls(("secret_get", {"name": "TOKEN"})), says("No"), agent_id="clerk")
    assert run.status == "succeeded"
    assert "There is no secret 'TOKEN'" in stage.asked(1)
