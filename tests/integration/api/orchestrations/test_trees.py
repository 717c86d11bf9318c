"""Orchestrations over HTTP: started, seen, continued, prompted and killed."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.api.orchestrations.conftest import PATH, Orchestrated
from tests.requirements import proves
from tests.support.harness.trees import call, complete, script, spawn


async def test_an_orchestration_is_started_and_has_its_result(orchestrated: Orchestrated) -> None:
    started = await orchestrated.start(
        spawn(complete("The bug is in parse()."), name="Finder"), complete("Found it."), token_budget=10**9
    )
    assert (started["state"], started["finished_at"], started["limits"]["token_budget"]) == ("PENDING", None, 10**9)
    await orchestrated.settle()
    ended = await orchestrated.get(started["id"])
    assert (ended["state"], ended["summary"], ended["error"]) == ("COMPLETED", "Found it.", None)
    assert ended["agents"] == {"COMPLETED": 2}
    assert ended["usage"]["output_tokens"] > 0
    tree = await orchestrated.get(started["id"], "/tree")
    assert [(agent["role"], agent["depth"], agent["name"]) for agent in tree["agents"]] == [
        ("MASTER", 0, "Master"),
        ("WORKER", 1, "Finder"),
    ]
    assert [agent["model"] for agent in (ended, *tree["agents"])] == ["scripted"] * 3, "The default, which ran."
    assert tree["agents"][1]["parent_id"] == tree["master_id"] == ended["master_id"]
    assert sum(agent["usage"]["output_tokens"] for agent in tree["agents"]) == ended["usage"]["output_tokens"]
    messages = (await orchestrated.get(started["id"], "/messages"))["items"]
    assert [message["type"] for message in messages] == ["SPAWN_REQUEST", "TASK_RESULT"]
    assert messages[1]["payload"]["text"] == "The bug is in parse()."


async def test_a_tree_shows_who_waits_for_whom(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(spawn(call("ask_user", question="Which file?")), complete("done"))
    assert view["state"] == "WAITING_FOR_CHILD"
    master, child = (await orchestrated.get(view["id"], "/tree"))["agents"]
    assert master["waits_for"] == [child["id"]]
    assert [(each["agent_id"], each["waits_for"]) for each in view["waiting"]] == [(master["id"], [child["id"]])]
    (wait,) = child["waits"]
    assert wait["request"]["question"] == "Which file?"
    answer = await orchestrated.api.http.post(f"/v1/runs/{wait['run_id']}/answers", json={"text": "parse.py"})
    assert answer.status_code == 200, answer.text
    await orchestrated.settle()
    assert (await orchestrated.get(view["id"]))["state"] == "COMPLETED"


async def test_the_same_idempotency_key_starts_one_orchestration(orchestrated: Orchestrated) -> None:
    http = orchestrated.api.http
    body, headers = {"agent_id": "scripted", "task": script(complete("once"))}, {"Idempotency-Key": "k1"}
    first = await http.post(PATH, json=body, headers=headers)
    again = await http.post(PATH, json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await http.post(PATH, json={**body, "task": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    assert len((await http.get(PATH)).json()["items"]) == 1


@pytest.mark.parametrize("master", ["agent", "external"])
async def test_a_repeated_start_is_answered_although_the_configuration_refuses_it_now(
    orchestrated: Orchestrated, master: str
) -> None:
    http, headers = orchestrated.api.http, {"Idempotency-Key": "k2"}
    body = {"agent_id": "scripted", "task": script(complete("once")), "max_concurrent_agents": 4, "master": master}
    first = await http.post(PATH, json=body, headers=headers)
    stored = await http.put(f"{PATH}/config", json={"text": "engine: {max_concurrent_agents: 2}"})
    assert stored.status_code == 200, stored.text
    again = await http.post(PATH, json=body, headers=headers)
    assert (again.status_code, again.json().get("id")) == (201, first.json()["id"])
    other = await http.post(PATH, json=body)
    assert other.status_code == 422


async def test_an_ended_master_continues_with_a_follow_up_task(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(complete("first"))
    refused = await orchestrated.api.http.post(f"{PATH}/{view['id']}/continue", json={"task": " "})
    assert refused.status_code == 422
    continued = await orchestrated.post(view["id"], "/continue", task=script(complete("second")))
    assert (continued["state"], continued["finished_at"]) == ("PENDING", None)
    early = await orchestrated.api.http.post(f"{PATH}/{view['id']}/continue", json={"task": "x"})
    assert (early.status_code, early.json()["code"]) == (409, "agent_spawn_error")
    await orchestrated.settle()
    ended = await orchestrated.get(view["id"])
    assert (ended["master_id"], ended["summary"]) == (view["master_id"], "second")
    runs = (await orchestrated.api.http.get("/v1/runs", params={"thread_id": view["thread_id"]})).json()["items"]
    assert [run["source"] for run in runs] == ["api", "api"], "A person asked for both."


async def test_a_continuation_that_is_repeated_with_its_key_has_one_effect(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(complete("first"))
    path, second = f"{PATH}/{view['id']}/continue", {"task": script(complete("second"))}
    post = orchestrated.api.http.post
    answers = await asyncio.gather(*(post(path, json=second, headers={"Idempotency-Key": "c1"}) for _ in range(3)))
    assert [answer.status_code for answer in answers] == [200] * 3
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 2
    await orchestrated.settle()
    await orchestrated.post(view["id"], "/continue", task=script(complete("third")))
    await orchestrated.settle()
    late = await post(path, json=second, headers={"Idempotency-Key": "c1"})
    assert (late.status_code, late.json()["summary"]) == (200, "third")
    other = await post(path, json={"task": "else"}, headers={"Idempotency-Key": "c1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    (master,) = (await orchestrated.get(view["id"], "/tree"))["agents"]
    assert master["activations"] == 3


async def test_a_refused_continuation_leaves_its_key_free(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(complete("first"))
    path, body = f"{PATH}/{view['id']}/continue", {"task": script(complete("second"))}
    early = await orchestrated.api.http.post(path, json=body, headers={"Idempotency-Key": "c1"})
    await orchestrated.settle()
    again = await orchestrated.api.http.post(path, json=body, headers={"Idempotency-Key": "c1"})
    assert (early.status_code, again.status_code) == (409, 200)


async def test_an_agent_or_the_whole_tree_is_killed(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(
        spawn(call("ask_user", question="One?"), wait=False, name="One"),
        spawn(call("ask_user", question="Two?"), wait=False, name="Two"),
        call("wait_for_message"),
    )
    tree = (await orchestrated.get(view["id"], "/tree"))["agents"]
    first = await orchestrated.post(view["id"], "/kill", agent_id=tree[1]["id"], reason="not needed")
    assert first["agents"]["KILLED"] == 1
    killed = await orchestrated.post(view["id"], "/kill")
    assert (killed["state"], killed["agents"]) == ("KILLED", {"KILLED": len(tree)})
    assert killed["finished_at"] is not None
    assert await orchestrated.post(view["id"], "/kill") == killed
    states = {agent["id"]: agent["error"] for agent in (await orchestrated.get(view["id"], "/tree"))["agents"]}
    assert states[tree[1]["id"]] == {"code": "killed", "message": "Killed: not needed."}


async def test_a_person_prompts_a_waiting_agent(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(
        spawn(call("ask_user", question="Which?"), wait=False), call("wait_for_message"), complete("heard")
    )
    await orchestrated.post(view["id"], f"/agents/{view['master_id']}/prompt", text="Go on.")
    await orchestrated.settle()
    assert (await orchestrated.get(view["id"]))["summary"] == "heard"
    unknown = await orchestrated.api.http.post(f"{PATH}/{view['id']}/agents/oag_x/prompt", json={"text": "x"})
    assert (unknown.status_code, view["master_id"] in unknown.json()["detail"]) == (404, True)


async def test_the_configuration_applies_as_it_was_at_the_start(orchestrated: Orchestrated) -> None:
    put = await orchestrated.api.http.put(f"{PATH}/config", json={"text": "engine: {max_agent_depth: 1}\n"})
    assert put.status_code == 200
    view = await orchestrated.start(complete("x"))
    assert (view["config_version"], view["limits"]["max_agent_depth"]) == (1, 1)
    lower = await orchestrated.start(complete("x"), max_agent_depth=0)
    assert lower["limits"]["max_agent_depth"] == 0
    body = {"agent_id": "scripted", "task": "x", "max_agent_depth": 2}
    refused = await orchestrated.api.http.post(PATH, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert "2 is more than the configuration permits, 1" in refused.json()["detail"]


async def test_orchestrations_are_listed_in_pages_by_state_and_agent(orchestrated: Orchestrated) -> None:
    ended = [(await orchestrated.run(complete(str(number))))["id"] for number in range(3)]
    running = (await orchestrated.start(complete("later")))["id"]
    http = orchestrated.api.http
    first = (await http.get(PATH, params={"limit": 3})).json()
    rest = (await http.get(PATH, params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert [each["id"] for each in first["items"] + rest["items"]] == [running, *reversed(ended)]
    assert [each["id"] for each in (await http.get(PATH, params={"open": "true"})).json()["items"]] == [running]
    assert len((await http.get(PATH, params={"open": "false"})).json()["items"]) == 3
    assert (await http.get(PATH, params={"agent_id": "nova"})).json()["items"] == []


async def test_the_history_of_an_agent_is_read_in_two_levels_of_detail(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run({"say": "Let me see. "}, call("report_progress", status="half"), complete("done"))
    part = f"/agents/{view['master_id']}/history"
    short = (await orchestrated.get(view["id"], part))["entries"]
    assert {entry["type"] for entry in short} == {"USER_MESSAGE", "TEXT", "TOOL_CALL"}
    assert all(entry["params"] is None for entry in short)
    full = (await orchestrated.get(view["id"], f"{part}?detail_level=full"))["entries"]
    assert next(entry["params"] for entry in full if entry["tool_name"] == "report_progress") == {"status": "half"}
    assert "TOOL_RESULT" in {entry["type"] for entry in full}


@proves("orchestration.tenants")
async def test_another_tenant_reaches_nothing_of_an_orchestration(
    orchestrated: Orchestrated, api: Api, other_tenant: Tenant
) -> None:
    view = await orchestrated.run(spawn(call("wait_for_message"), wait=False), call("wait_for_message"))
    path = f"{PATH}/{view['id']}"
    async with api.client(other_tenant.key) as stranger:
        for part in ("", "/tree", "/messages", "/changes", f"/agents/{view['master_id']}/history"):
            assert (await stranger.get(path + part)).status_code == 404
        assert (await stranger.post(f"{path}/continue", json={"task": "x"})).status_code == 404
        assert (await stranger.post(f"{path}/kill", json={})).status_code == 404
        prompt = await stranger.post(f"{path}/agents/{view['master_id']}/prompt", json={"text": "x"})
        assert prompt.status_code == 404
        assert (await stranger.get(PATH)).json()["items"] == []
    assert (await orchestrated.get(view["id"]))["state"] == view["state"]


@pytest.mark.parametrize("scopes", [("agents",), ("workspace",)])
async def test_orchestrations_need_the_scope_of_runs(api: Api, database: Database, scopes: tuple[str, ...]) -> None:
    limited = await make_tenant(database, scopes=scopes, tenant_id=api.tenant.id)
    async with api.client(limited.key) as client:
        assert (await client.get(PATH)).status_code == 403
        assert (await client.post(PATH, json={"task": "x"})).status_code == 403
