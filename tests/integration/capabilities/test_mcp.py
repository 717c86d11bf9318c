"""The mcp and browser capabilities: refused configurations, and permitted ones that work."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import HttpMcpServer, StdioMcpServer
from nova_workers.contracts.steps import ToolServerAway
from nova_workers.domain.capabilities.rules import CapabilityContext, CapabilityRegistry, default_registry
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.requirements import proves
from tests.support.harness.logs import recorded_logs
from tests.support.harness.tool_server import tool_server
from tests.support.servers.mcp_http_server import McpHttpServer
from tests.support.servers.model_server import model_server

Json = dict[str, Any]

CHILD = [sys.executable, "-m", "tests.support.servers.mcp_stdio_server"]
NOTHING = PostgresDatabase("postgresql://nobody@127.0.0.1:1/none", pool_size=1)


def registry(**tools: Any) -> CapabilityRegistry:
    return default_registry(NOTHING, Settings.model_validate({"tools": tools}), SystemClock(), serve=tool_server())


def agent(**capabilities: Json) -> AgentSpec:
    return AgentSpec.model_validate({"name": "a", "capabilities": capabilities})


def mcp(**server: Any) -> AgentSpec:
    return agent(mcp={"config": {"servers": {"one": server}}})


def http(url: str = "https://example.com/mcp", **rest: Any) -> Json:
    return {"type": "http", "url": url, **rest}


def stdio(**rest: Any) -> Json:
    return {"type": "stdio", "command": "my-server", **rest}


ONE = "capabilities.mcp.config.servers.one"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "capabilities.mcp.config.servers"),
        ({"servers": {}}, "capabilities.mcp.config.servers"),
        ({"servers": {"Not A Name": http()}}, "capabilities.mcp.config.servers.Not A Name.[key]"),
        ({"servers": {"one__two": http()}}, "capabilities.mcp.config.servers.one__two.[key]"),
        ({"servers": {"one_": http()}}, "capabilities.mcp.config.servers.one_.[key]"),
        ({"servers": {"a" * 41: http()}}, f"capabilities.mcp.config.servers.{'a' * 41}.[key]"),
        ({"servers": {"one": {"type": "sse", "url": "https://a.b"}}}, ONE),
        ({"servers": {"one": {"url": "https://a.b"}}}, ONE),
        ({"servers": {"one": http(command="x")}}, f"{ONE}.http.command"),
        ({"servers": {"one": http("ftp://a.b")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http("https://")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http("https://u:p@a.b/")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http("https://${secret:HOST}.evil.example/")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http("https://a.b:x/")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http("https://a.b/?k=${secret:no}")}}, f"{ONE}.http.url"),
        ({"servers": {"one": http(headers={"Host": "a"})}}, f"{ONE}.http.headers"),
        ({"servers": {"one": http(headers={"X-A": "a\r\nX-B: b"})}}, f"{ONE}.http.headers.X-A"),
        ({"servers": {"one": http(headers={"X A": "a"})}}, f"{ONE}.http.headers.X A.[key]"),
        ({"servers": {"one": http(timeout_s=0)}}, f"{ONE}.http.timeout_s"),
        ({"servers": {"one": http(tools=[""])}}, f"{ONE}.http.tools.0"),
        ({"servers": {"one": http("http://example.com/")}}, f"{ONE}.url"),
        ({"servers": {"one": stdio()}}, f"{ONE}.command"),
        ({"servers": {"one": stdio(command="")}}, f"{ONE}.stdio.command"),
        ({"servers": {"one": stdio(args=["a\x00"])}}, f"{ONE}.stdio.args.0"),
        ({"servers": {"one": stdio(cwd="here")}}, f"{ONE}.stdio.cwd"),
        ({"servers": {"one": stdio(env={"A B": "x"})}}, f"{ONE}.stdio.env.A B.[key]"),
        ({"servers": {str(at): http() for at in range(21)}}, "capabilities.mcp.config.servers"),
    ],
)
def test_a_bad_configuration_is_refused_by_field(config: Json, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        registry().validate(agent(mcp={"config": config}))
    assert refused.value.fields["field"] == field, refused.value.message


@proves("mcp.permitted")
def test_only_permitted_commands_are_accepted() -> None:
    permitted = registry(mcp_commands=["npx @modelcontextprotocol/*", "my-server"])
    permitted.validate(mcp(**stdio()))
    permitted.validate(mcp(type="stdio", command="npx", args=["@modelcontextprotocol/server-time"]))
    for refused in (
        mcp(**stdio(args=["--eval"])),
        mcp(type="stdio", command="npx", args=["evil"]),
        mcp(type="stdio", command="npx @modelcontextprotocol/x"),
        mcp(type="stdio", command="sh", args=["-c", "my-server"]),
    ):
        with pytest.raises(InvalidInput, match="NOVA_TOOLS__MCP_COMMANDS"):
            permitted.validate(refused)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "LD_PRELOAD",
        "UV_DEFAULT_INDEX",
        "PIP_INDEX_URL",
        "JDK_JAVA_OPTIONS",
        "OPENSSL_CONF",
        "github_token",
        "X",
    ],
)
def test_only_variables_that_the_operator_names_are_accepted(name: str) -> None:
    permitted = registry(mcp_commands=["my-server"], mcp_env=["GITHUB_TOKEN", "ACME_*"])
    permitted.validate(mcp(**stdio(env={"GITHUB_TOKEN": "x", "ACME_ZONE": "y"})))
    with pytest.raises(InvalidInput, match="NOVA_TOOLS__MCP_ENV") as refused:
        permitted.validate(mcp(**stdio(env={"ACME_ZONE": "y", name: "x"})))
    assert refused.value.fields["field"] == f"capabilities.mcp.config.servers.one.env.{name}"


def test_plain_http_is_only_for_allowed_hosts() -> None:
    permitted = registry(mcp_allow_hosts=["mcp.internal", "127.0.0.1:9000"])
    permitted.validate(mcp(**http("http://mcp.internal:1234/mcp")))
    permitted.validate(mcp(**http("http://127.0.0.1:9000/mcp")))
    for url in ("http://127.0.0.1:9001/mcp", "http://mcp.internal.example/"):
        with pytest.raises(InvalidInput, match="NOVA_TOOLS__MCP_ALLOW_HOSTS"):
            permitted.validate(mcp(**http(url)))


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Stage]:
    command = shlex.join(CHILD)
    async with (
        model_server() as model,
        open_stage(
            database, redis, settings, model, mcp_commands=[command], mcp_env=["G*"], browser_command=command
        ) as stage,
    ):
        await stage.secrets.put(stage.harness.tenant_id, "GREETING", "Hello, my secret ", by="person")
        yield stage


async def resolved(stage: Stage, spec: AgentSpec) -> dict[str, Any]:
    built = default_registry(stage.harness.database, stage.harness.settings, SystemClock(), serve=tool_server())
    return await built.resolve(spec, CapabilityContext(stage.harness.tenant_id, "a", "thr_1", "run_1"))


async def test_servers_belong_to_the_tenant_and_get_its_secrets(stage: Stage) -> None:
    child = {"type": "stdio", "command": CHILD[0], "args": CHILD[1:], "env": {"G": "<${secret:GREETING}>"}}
    remote = http("https://a.b/x?k=${secret:GREETING}", headers={"X-Key": "${secret:GREETING}"}, tools=["t", "u"])
    spec = agent(mcp={"config": {"servers": {"memory": child, "two": remote}}, "tools": ["u", "v"]}, memory={})
    servers = await resolved(stage, spec)
    assert list(servers) == ["memory", "mcp__memory", "mcp__two"]
    assert servers["mcp__memory"] == StdioMcpServer(
        CHILD[0],
        tuple(CHILD[1:]),
        {"G": "<Hello, my secret >"},
        tools=("u", "v"),
        scope=stage.harness.tenant_id,
        qualified=True,
    )
    assert servers["mcp__two"] == HttpMcpServer(
        "https://a.b/x?k=Hello%2C%20my%20secret%20",
        {"X-Key": "Hello, my secret "},
        tools=("u",),
        scope=stage.harness.tenant_id,
        qualified=True,
    )


async def test_a_missing_or_unusable_secret_is_named(stage: Stage) -> None:
    missing = mcp(**http(headers={"A": "${secret:NONE}", "B": "${secret:NEITHER}"}))
    with pytest.raises(InvalidInput, match="no secret 'NEITHER', 'NONE'"):
        await resolved(stage, missing)
    await stage.secrets.put(stage.harness.tenant_id, "LINES", "two\r\nlines", by="person")
    with pytest.raises(InvalidInput, match="'LINES' has characters that no HTTP header takes") as refused:
        await resolved(stage, mcp(**http(headers={"A": "${secret:LINES}"})))
    assert "lines" not in refused.value.message


async def test_a_model_uses_a_program_whose_environment_has_a_secret(stage: Stage, database: Database) -> None:
    child = {
        "type": "stdio",
        "command": CHILD[0],
        "args": CHILD[1:],
        "cwd": os.getcwd(),
        "env": {"GREETING": "${secret:GREETING}"},
    }
    await stage.agent(
        "clerk", capabilities={"mcp": {"config": {"servers": {"child": child}}, "tools": ["echo", "pid"]}}
    )
    run = await stage.run(
        "Greet",
        calls(("mcp__child__echo", {"text": "world"})),
        says("It said: Hello, my ", "secret world"),
        agent_id="clerk",
    )
    assert run.status == "succeeded", run.error
    assert "Hello, my secret world" in stage.asked(1)
    assert {tool["name"] for tool in stage.model.requests[0]["tools"]} == {"mcp__child__echo", "mcp__child__pid"}
    assert "Hello, my secret" not in await stage.dump()
    assert run.text == "It said: [secret:GREETING]world"
    result = await database.fetchval("SELECT result::text FROM tool_calls")
    assert "[secret:GREETING]world" in result


@pytest.mark.parametrize("decision", ["always", "never"])
async def test_a_rule_for_mcp_applies_to_the_tools_of_every_server(stage: Stage, decision: str) -> None:
    child = {"type": "stdio", "command": CHILD[0], "args": CHILD[1:], "cwd": os.getcwd()}
    await stage.agent(
        "clerk",
        capabilities={"mcp": {"config": {"servers": {"my_child-1": child}}}},
        permissions={"approvals": [{"tool": "mcp__*", "decision": decision}]},
    )
    run = await stage.run("Greet", calls(("mcp__my_child-1__echo", {"text": "world"})), says("Done"), agent_id="clerk")
    assert run.status == "succeeded", run.error
    assert ("must not use" in stage.asked(1)) is (decision == "never")


async def test_a_program_that_the_operator_no_longer_permits_is_not_started(stage: Stage) -> None:
    await stage.harness.add_agent(
        "old", {"name": "old", "engine": "anthropic", "capabilities": {"mcp": {"config": {"servers": {"a": stdio()}}}}}
    )
    run = await stage.run("Go", says("never"), agent_id="old")
    assert run.status == "failed"
    assert "NOVA_TOOLS__MCP_COMMANDS" in str(run.error)


async def test_a_server_that_is_away_is_named_to_the_model_in_an_event_and_for_the_agents_page(
    database: Database, redis: Redis, settings: Settings
) -> None:
    def child(program: str) -> Json:
        args = ["-I", "-S", "-c", program]
        return {"type": "stdio", "command": CHILD[0], "args": args, "env": {"G": "${secret:GREETING}"}}

    away = AwayServers(redis)
    async with (
        model_server() as model,
        open_stage(database, redis, settings, model, mcp_commands=["*"], mcp_env=["G*"]) as stage,
    ):
        tenant_id = stage.harness.tenant_id
        await stage.secrets.put(tenant_id, "GREETING", "Hello, my secret ", by="person")
        servers = {"dead": child("import os, sys; sys.exit('no customer ' + os.environ['G'])")}
        await stage.agent("clerk", capabilities={"mcp": {"config": {"servers": servers}}})
        run = await stage.run("Greet", says("Sorry"), agent_id="clerk")
        assert run.status == "succeeded", run.error
        assert "tools are missing: mcp__dead" in stage.asked(0)
        (event,) = (entry for entry in await stage.events() if '"tool_servers_away"' in entry)
        assert "no customer [secret:GREETING]" in event
        (server,) = await away.of(tenant_id, "clerk")
        assert (server.name, server.output) == ("mcp__dead", ["no customer [secret:GREETING]"])

        servers = {"mine": {**child(""), "args": CHILD[1:], "cwd": os.getcwd()}}
        await stage.agent("reader", capabilities={"mcp": {"config": {"servers": servers}}})
        await away.note(tenant_id, "reader", (ToolServerAway("mcp__mine", "it was away"),), server.at)
        run = await stage.run("Greet", says("Hello"), agent_id="reader")
        assert run.status == "succeeded", run.error
        assert await away.of(tenant_id, "reader") == [], "A server that answers is not away any more."


async def test_a_programs_stderr_is_logged_without_secrets(stage: Stage) -> None:
    child = {
        "type": "stdio",
        "command": CHILD[0],
        "args": CHILD[1:],
        "cwd": os.getcwd(),
        "env": {"GREETING": "${secret:GREETING}"},
    }
    await stage.agent("clerk", capabilities={"mcp": {"config": {"servers": {"child": child}}}})
    with recorded_logs() as logs:
        run = await stage.run("Say", calls(("mcp__child__complain", {})), says("Done"), agent_id="clerk")
        assert run.status == "succeeded", run.error
        for engine in stage.harness.engines.values():
            await engine.close()
        assert "no good: [secret:GREETING]" in logs.getvalue()
        assert "Hello, my secret" not in logs.getvalue()


async def test_an_internal_address_is_not_connected_to(database: Database, redis: Redis, settings: Settings) -> None:
    async with (
        McpHttpServer() as server,
        model_server() as model,
        open_stage(database, redis, settings, model) as stage,
    ):
        # As if it had been written before the rule, or the name led elsewhere then.
        inside = server.url.replace("http://", "https://")
        spec = {"capabilities": {"mcp": {"config": {"servers": {"a": http(inside)}}}}}
        await stage.agent("clerk", **spec)
        with recorded_logs() as logs:
            run = await stage.run("Go", calls(("mcp__a__deliver", {"text": "x"})), says("No"), agent_id="clerk")
        assert run.status == "succeeded"
        assert "tools" not in stage.model.requests[0] or not stage.model.requests[0]["tools"]
        assert "is not fetched" in logs.getvalue()
        assert server.delivered == []


def test_no_agent_has_a_browser_before_the_operator_configures_one() -> None:
    for command in (None, "  "):
        with pytest.raises(InvalidInput, match="NOVA_TOOLS__BROWSER_COMMAND") as refused:
            registry(browser_command=command).validate(agent(browser={}))
        assert refused.value.fields["field"] == "capabilities.browser.config"
    registry(browser_command="npx @playwright/mcp@latest").validate(agent(browser={"tools": ["browser_navigate"]}))


@pytest.mark.parametrize("origins", [["javascript:alert(1)"], ["https://a.b;--no-sandbox"], ["https://a.b/path"]])
def test_origins_of_a_browser_have_one_form(origins: list[str]) -> None:
    with pytest.raises(InvalidInput, match=r"allowed_origins\.0"):
        registry(browser_command="npx x").validate(agent(browser={"config": {"allowed_origins": origins}}))


def test_a_browser_behind_a_url_has_no_settings() -> None:
    elsewhere = registry(browser_command="http://127.0.0.1:8931/mcp")
    elsewhere.validate(agent(browser={}))
    with pytest.raises(InvalidInput, match="allowed_origins"):
        elsewhere.validate(agent(browser={"config": {"allowed_origins": ["https://a.b"]}}))


async def test_each_run_has_its_own_headless_browser(stage: Stage) -> None:
    spec = agent(browser={"config": {"allowed_origins": ["https://a.b", "https://c.d:8443"]}})
    servers = await resolved(stage, spec)
    flags = ("--headless", "--isolated", "--allowed-origins", "https://a.b;https://c.d:8443")
    assert servers["browser"] == StdioMcpServer(
        CHILD[0], (*CHILD[1:], *flags), timeout_s=120.0, scope=stage.harness.tenant_id, reuse=False
    )
    await stage.agent("surfer", capabilities={"browser": {}})
    pids: list[str] = []
    for _ in range(2):
        run = await stage.run("Look", calls(("pid", {})), says("Done"), agent_id="surfer")
        assert run.status == "succeeded", run.error
        pids.append(stage.model.requests[1]["messages"][-1]["content"][0]["content"][0]["text"])
    assert len(set(pids)) == 2


async def test_a_browser_behind_a_url_is_reached(database: Database, redis: Redis, settings: Settings) -> None:
    async with (
        McpHttpServer() as server,
        model_server() as model,
        open_stage(database, redis, settings, model, browser_command=server.url) as stage,
    ):
        await stage.agent("surfer", capabilities={"browser": {"tools": ["deliver"]}})
        run = await stage.run("Look", calls(("deliver", {"text": "hello"})), says("Done"), agent_id="surfer")
        assert run.status == "succeeded", run.error
        assert server.delivered == ["hello"]
