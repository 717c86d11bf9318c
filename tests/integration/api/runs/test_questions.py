"""A question reaches its followers though the worker died before it sent the event, or the stream was wiped."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.contracts import events as live
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool, Pause
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.runs.event_streams import begun
from tests.requirements import proves
from tests.support.harness.run_reader import RunReader
from tests.support.waiting import until

_QUESTION = NewWait("call_0", AskUser(question="Which colour?", options=("red", "blue")))


@proves("events.exact")
async def test_every_follower_gets_the_question_once_and_the_text_whole(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    turn = await begun(api, worker)
    run_id = turn.claim.run_id
    readers = [RunReader(api.url, api.tenant.key, run_id), RunReader(api.url, api.tenant.key, run_id, cut_after=2)]
    late = RunReader(api.url, api.tenant.key, run_id)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read())
        await turn.emit(live.Token(text="I must "))
        await until(lambda: all(reader.text.open for reader in readers), "the first token")
        await turn.suspend("I must ask.", _QUESTION)
        await until(lambda: all("waiting" in reader.seen for reader in readers), "the question")
        assert all(reader.text.texts == ("I must ask.",) for reader in readers)
        # The worker was only frozen: what it sends now is old.
        await turn.emit(
            live.Token(text="ask."), live.Step(index=0), live.Waiting(kind="user", question="Which colour?")
        )
        await redis.flushdb()
        group.create_task(late.read())
        await until(lambda: "waiting" in late.seen, "the question of a wiped stream")
        answer = await api.http.post(f"/v1/runs/{run_id}/answers", json={"text": "red"})
        assert answer.status_code == 200, answer.text
        again = await worker.claim(turn.claim.thread_id)
        await again.commit("I must ask.", ToolCall("call_0", "ask", {}, step=0, sequence=0, status="completed"))
        await again.emit(live.Token(text="Red it is."))
        await again.finish("Red it is.")
    for reader in (*readers, late):
        assert reader.text.texts == ("I must ask.", "Red it is.")
        assert reader.seen.count("waiting") == 1, reader.seen


@proves("audit.answers")
async def test_the_audit_log_says_who_permitted_which_call(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    asks = AskApproval(tool_name="Bash", params={"command": "rm -r build"}, reason="it deletes")
    await turn.suspend("", NewWait("call_0", asks))
    path = f"/v1/runs/{turn.claim.run_id}/answers"
    assert (await api.http.post(path, json={"approve": True})).status_code == 200
    assert (await api.http.post(path, json={"approve": False})).status_code == 409
    [said] = (await api.http.get("/v1/audit", params={"target_kind": "run"})).json()["items"]
    assert said["action"] == "approval.granted"
    assert said["target_id"].startswith(f"{turn.claim.run_id}/wait_")
    assert (said["actor_kind"], said["actor_id"], said["actor_name"]) == ("key", api.tenant.key_id, "test")
    # Over the text that Postgres makes of the JSON: shorter names first.
    decided = {"answer": {"approve": True}, "request": asks.model_dump(mode="json")}
    decided["request"] = dict(sorted(decided["request"].items(), key=lambda item: (len(item[0]), item[0])))
    stored = json.dumps(decided)
    assert said["arguments_hash"] == sha256(stored.encode()).hexdigest()
    assert "rm -r" not in str(said)


@pytest.mark.usefixtures("own_api")
async def test_a_client_that_waits_for_the_run_learns_of_a_question_that_was_never_sent(
    api: Api, worker: ManualWorker
) -> None:
    turn = await begun(api, worker)
    waiting = asyncio.create_task(api.http.get(f"/v1/runs/{turn.claim.run_id}/wait", params={"timeout_s": 200}))
    await until(lambda: api.state.services.hub.open_feeds == 1)
    await turn.suspend("", _QUESTION)
    # What follows the question is not lost.
    await turn.emit(live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting"))
    async with asyncio.timeout(60):
        answer = await waiting
    assert (answer.status_code, answer.json()["waits"][0]["request"]["question"]) == (202, "Which colour?")


async def test_a_run_that_waits_for_no_person_does_not_end_a_wait(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    began_s = time.monotonic()
    until_tomorrow = NewWait("call_0", Pause(until=datetime.now(UTC) + timedelta(days=1)), due_in_s=86_400)
    await turn.suspend("", until_tomorrow)
    answer = await api.http.get(f"/v1/runs/{turn.claim.run_id}/wait", params={"timeout_s": 5})
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    assert time.monotonic() - began_s >= 5


@proves("runs.client-tools")
async def test_results_of_the_callers_tools_are_given_over_http(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker, client_tools=[{"name": "look"}], instructions="In Danish.")
    run_id = turn.claim.run_id
    waits = [NewWait(f"call_{at}", CallClientTool(tool_name="look", params={"at": at})) for at in range(2)]
    reader = RunReader(api.url, api.tenant.key, run_id)
    path = f"/v1/runs/{run_id}/tool-results"
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reader.read())
        await turn.suspend("Let me look.", *waits)
        await until(lambda: reader.seen.count("waiting") == 2, "the calls")
        shown = await api.http.get(f"/v1/runs/{run_id}/wait", params={"timeout_s": 60})
        view = shown.json()
        assert (shown.status_code, view["waiting_for"]) == (202, "a tool of its caller")
        assert (view["client_tools"], view["instructions"]) == (["look"], "In Danish.")
        assert [wait["request"]["params"] for wait in view["waits"]] == [{"at": 0}, {"at": 1}]
        answered = await api.http.post(f"/v1/runs/{run_id}/answers", json={"text": "red"})
        assert (answered.status_code, "tool-results" in answered.json()["detail"]) == (409, True)
        twice = {"results": [{"tool_call_id": "call_0"}, {"tool_call_id": "call_0"}]}
        refused = await api.http.post(path, json=twice)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "results.1.tool_call_id")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        refused = await api.http.post(path, json={"results": [{"tool_call_id": "call_0", "content": [image]}]})
        assert (refused.status_code, "results.0.content.0.source.data" in refused.text) == (422, True)
        blocks = [{"type": "text", "text": "a grey sky"}]
        given = {"results": [{"tool_call_id": "call_1", "content": blocks}, {"tool_call_id": "call_0"}]}
        for _ in range(2):
            assert (await api.http.post(path, json=given)).json()["status"] == "queued"
        again = await worker.claim(turn.claim.thread_id)
        await again.finish("Rain.")
    results = "SELECT array_agg(c.result ORDER BY c.call_id) FROM tool_calls c WHERE c.tenant_id = :tenant_id"
    assert await api.fetchval(results, tenant_id=api.tenant.id) == [[], blocks]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"client_tools": [{"name": "a b"}]}, "client_tools.0.name"),
        ({"client_tools": [{"name": "look"}, {"name": "look"}]}, "client_tools"),
        ({"client_tools": [{"name": "look", "default": "x"}]}, "client_tools.0"),
        ({"client_tools": [{"name": f"t{at}"} for at in range(129)]}, "client_tools"),
        ({"client_tools": [{"name": "Read"}]}, "client_tools.0.name"),
        ({"temperature": 2}, "temperature"),
        ({"output_schema": {"type": "nothing"}}, "output_schema.type"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"instructions": "x", "on_busy": "steer"}, "instructions"),
    ],
)
@proves("runs.options")
async def test_options_that_no_run_can_have_are_refused(api: Api, given: dict[str, Any], field: str) -> None:
    refused = await api.http.post("/v1/runs", json={"message": "hello", **given})
    assert refused.status_code == 422, refused.text
    assert field in str(refused.json()["errors"]) + refused.json()["detail"]
    assert await api.count("runs") == 0
