"""Agents elsewhere that answer with what they should not: with secrets, without a form, from another address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import calls, open_stage, says
from tests.integration.capabilities.tool_caller import ToolCaller
from tests.requirements import proves
from tests.support.servers.model_server import model_server
from tests.support.servers.web_server import WebServer, redirect, reply, web_server

_SECRET = "key-of-the-agent-elsewhere"
_ASK = ("ask_remote_agent", {"agent": "there", "message": "What is a fence?"})


def _result(value: Any) -> bytes:
    return reply(orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": value}), kind="application/json")


def _task(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "task-1", "contextId": "context-1", "status": {"state": f"TASK_STATE_{state}"}, **more}


def _card(web: WebServer, **more: str) -> bytes:
    interface = {"url": f"http://127.0.0.1:{web.port}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {"name": "There", "description": "Knows fences.", "supportedInterfaces": [interface | more]}
    return reply(orjson.dumps(card), kind="application/json")


def _in_turn(web: WebServer, *answers: bytes) -> None:
    """Answer calls with these, in their order."""
    left: Iterator[bytes] = iter(answers)
    web.page("/rpc", lambda: next(left))


def _agent(web: WebServer, token: str) -> Mapping[str, Any]:
    agent = {"url": f"http://127.0.0.1:{web.port}/card", "headers": {"X-Key": token}}
    return {"a2a": {"config": {"agents": {"there": agent}}}}


@proves("secrets.hidden")
async def test_a_secret_is_sent_to_the_agent_and_hidden_in_its_answer(
    database: Database, redis: Redis, settings: Settings
) -> None:
    async with (
        web_server() as web,
        model_server() as model,
        open_stage(database, redis, settings, model, mcp_allow_hosts=["127.0.0.1"]) as stage,
    ):
        await stage.secrets.put(stage.harness.tenant_id, "THERE", _SECRET, by="person")
        await stage.agent("asker", capabilities=_agent(web, "${secret:THERE}"))
        web.page("/card", _card(web, tenant="yours"))
        made = [{"artifactId": "a", "parts": [{"text": f"You sent {_SECRET}."}]}]
        _in_turn(web, _result({"task": _task("SUBMITTED")}), _result(_task("COMPLETED", artifacts=made)))
        run = await stage.run("Ask.", calls(_ASK), says("Done."), agent_id="asker")
        assert run.status == "succeeded", run.error
        assert all(f"x-key: {_SECRET}" in head.lower() for head in web.heads)
        calls_of_agent = [orjson.loads(body) for body in web.bodies if body]
        assert [(call["method"], call["params"]["tenant"]) for call in calls_of_agent] == [
            ("SendMessage", "yours"),
            ("GetTask", "yours"),
        ]
        dump = await stage.dump()
        assert "You sent [secret:THERE]." in dump
        assert _SECRET not in dump


_REFUSALS = (
    ((reply(b"<html>"),), "answered 200 with what is no response"),
    ((_result({"task": {"id": "x" * 300, "status": {"state": "TASK_STATE_WORKING"}}}),), "not a task or a message"),
    ((_result({"task": {"id": "a\u0000b", "status": {}}}),), "not a task or a message"),
    ((_result({}),), "neither a task nor a message"),
    ((_result({"task": _task("WORKING")}), _result([])), "is not a task"),
    ((_result({"task": _task("WORKING")}), _result(_task("FAILED"))), "The task of the agent is failed."),
    ((reply(b'{"error": {"message": "no \\u0000"}}'),), "refuses: no \ufffd"),
    ((reply(b"", status="500 No"),), "answered 500"),
    ((reply(b" " * 2_100_000),), "more than the 2,000,000 bytes"),
    ((reply(b"", status="503 No"),), "its status is 503"),
    ((_result({"task": _task("WORKING")}), reply(b"", status="503 No")), "[task_id: task-1]"),
)


async def test_the_model_gets_what_is_wrong_with_an_answer(database: Database) -> None:
    async with web_server() as web:
        caller = _caller(database, web)
        web.page("/card", _card(web))
        for answers, refusal in _REFUSALS:
            _in_turn(web, *answers)
            got = await caller.call(_ASK[0], **_ASK[1], timeout_s=0.1)
            assert got.startswith("!")
            assert refusal in got


async def test_credentials_are_not_sent_to_another_server_than_that_of_the_card(database: Database) -> None:
    async with web_server() as web, web_server() as other:
        caller = _caller(database, web)
        for url in ("https://127.0.0.1/rpc", f"http://127.0.0.1:{other.port}/rpc", "http://[", ""):
            web.page("/card", _card(web, url=url))
            assert f"at another server, {url!r}" in await caller.call(_ASK[0], **_ASK[1])
        web.page("/card", redirect(f"http://127.0.0.1:{other.port}/card"))
        assert "its server answered 302" in await caller.call(_ASK[0], **_ASK[1])
        assert other.heads == []


async def test_an_agent_over_plain_http_is_refused_where_the_operator_does_not_permit_it(database: Database) -> None:
    async with web_server() as web:
        caller = ToolCaller(database, capabilities=_agent(web, "token"))
        with pytest.raises(InvalidInput, match=r"agents\.there\.url: '127\.0\.0\.1' is to be reached over https"):
            await caller.servers()


def _caller(database: Database, web: WebServer) -> ToolCaller:
    settings = Settings()
    tools = settings.tools.model_copy(update={"mcp_allow_hosts": ("127.0.0.1",)})
    settings = settings.model_copy(update={"tools": tools})
    return ToolCaller(database, settings=settings, capabilities=_agent(web, "token"))
