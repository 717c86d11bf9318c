"""Programs outside of the fleet as masters, over HTTP: they spawn, wait, answer, and end the tree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nova_workers.base.vocabulary import ENDED_AGENTS
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.integration.api.orchestrations.conftest import PATH, Orchestrated
from tests.requirements import proves
from tests.support.harness.trees import call, complete, script
from tests.support.waiting import until


class Master:
    """An external master that a test drives."""

    def __init__(self, orchestrated: Orchestrated, view: dict[str, Any]) -> None:
        self.orchestrated = orchestrated
        self.id = view["id"]
        self.agent_id = view["master_id"]
        self._calls = 0

    async def call(self, tool: str, /, key: str | None = None, timeout_s: float = 10, **arguments: Any) -> Any:
        """Call a tool once."""
        self._calls += 1
        return await self.orchestrated.api.http.post(
            f"{PATH}/{self.id}/master/calls",
            json={"tool": tool, "arguments": arguments},
            headers={"Idempotency-Key": key or f"call-{self._calls}"},
            params={"timeout_s": timeout_s},
        )

    async def meanwhile(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that waits, let the fleet work, and return the reply."""
        waiting = asyncio.create_task(self.call(tool, **arguments))
        await until(lambda: self.orchestrated.api.state.services.hub.open_feeds == 1)
        await self.orchestrated.settle()
        answer = await waiting
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def master(orchestrated: Orchestrated) -> Master:
    """The external master of a new orchestration."""
    return Master(orchestrated, await orchestrated.start(master="external"))


def _child(*items: dict[str, Any], name: str) -> dict[str, Any]:
    return {"prompt": script(*items), "name": name}


@proves("orchestration.external-masters")
async def test_an_external_master_spawns_in_parallel_answers_a_question_and_completes(master: Master) -> None:
    tree = master.orchestrated
    assert (await tree.get(master.id))["state"] == "RUNNING"
    children = [
        _child(complete("part one"), name="One"),
        _child(call("ask_parent", question="Tabs or spaces?"), complete("part two"), name="Two"),
    ]
    asked = await master.meanwhile("spawn_children_parallel", children=children)
    assert "Tabs or spaces?" in asked["text"]
    asking = next(each for each in (await tree.get(master.id, "/tree"))["agents"] if each["name"] == "Two")
    answered = await master.call("respond_to_child", child_id=asking["id"], response="Spaces.")
    assert answered.status_code == 200, answered.text
    await tree.settle()
    results = [(await master.call("wait_for_message")).json()["text"] for _ in range(2)]
    assert {"part one" in "".join(results), "part two" in "".join(results)} == {True}
    ended = await tree.post(master.id, "/master/complete", summary="Both parts are done.")
    assert (ended["state"], ended["summary"]) == ("COMPLETED", "Both parts are done.")
    assert ended["finished_at"] is not None
    assert await tree.post(master.id, "/master/complete", summary="again") == ended
    late = await master.call("get_children_status")
    assert (late.status_code, late.json()["code"]) == (409, "orchestration_error")


@proves("orchestration.external-masters")
async def test_a_repeated_call_finds_its_children_and_gets_the_same_result(master: Master) -> None:
    child = _child(complete("once"), name="One")
    pending = await master.call("spawn_child", key="k", timeout_s=0.05, **child)
    assert (pending.status_code, pending.json()["pending"]) == (202, True)
    await master.orchestrated.settle()
    replies = [(await master.call("spawn_child", key="k", **child)).json() for _ in range(2)]
    assert "once" in replies[0]["text"]
    assert replies[0] == replies[1]
    assert len((await master.orchestrated.get(master.id, "/tree"))["agents"]) == 2


async def test_children_go_on_without_their_master(master: Master) -> None:
    await master.call("spawn_child", wait=False, **_child(complete("alone"), name="One"))
    await master.orchestrated.settle()
    again = Master(master.orchestrated, {"id": master.id, "master_id": master.agent_id})
    assert "alone" in (await again.call("wait_for_message", key="later")).json()["text"]


async def test_a_wait_has_a_time_of_its_own(master: Master) -> None:
    await master.call("spawn_child", wait=False, **_child(call("ask_user", question="?"), name="One"))
    reply = await master.call("wait_for_message", timeout=0.05)
    assert (reply.status_code, reply.json()["text"]) == (200, "No message arrived within 0.05 s.")


async def test_a_child_that_waits_for_its_waiting_master_is_ended(master: Master) -> None:
    await master.call("spawn_child", wait=False, **_child(call("wait_for_message"), name="One"))
    reply = await master.meanwhile("wait_for_message")
    assert "deadlock_detected" in reply["text"]
    assert (await master.orchestrated.get(master.id))["agents"] == {"FAILED": 1, "RUNNING": 1}


async def test_a_question_to_a_master_that_waits_for_the_child_is_no_deadlock(master: Master) -> None:
    child = _child(call("ask_parent", question="Tabs or spaces?"), complete("done"), name="One")
    pending = await master.call("spawn_child", key="k", timeout_s=0.05, **child)
    assert pending.status_code == 202
    await master.orchestrated.settle()
    assert "Tabs or spaces?" in (await master.call("spawn_child", key="k", **child)).json()["text"]
    assert (await master.orchestrated.get(master.id))["agents"] == {"RUNNING": 1, "WAITING_FOR_PARENT": 1}


async def test_a_waiting_master_is_woken_with_a_question_before_a_child_is_ended(master: Master) -> None:
    asks = _child(call("ask_parent", question="Tabs or spaces?"), complete("formatted"), name="Asks")
    await master.call("spawn_child", wait=False, **asks)
    await master.orchestrated.settle()
    woken = await master.meanwhile("spawn_child", **_child(call("wait_for_message"), complete("gone on"), name="Waits"))
    assert "Tabs or spaces?" in woken["text"]
    agents = {each["name"]: each["id"] for each in (await master.orchestrated.get(master.id, "/tree"))["agents"]}
    await master.call("respond_to_child", child_id=agents["Asks"], response="Spaces.")
    await master.call("send_child_prompt", child_id=agents["Waits"], prompt="Go on.")
    await master.orchestrated.settle()
    results = [(await master.call("wait_for_message")).json()["text"] for _ in range(2)]
    assert {"formatted" in "".join(results), "gone on" in "".join(results)} == {True}


async def test_a_call_that_would_close_a_deadlock_gets_the_question_at_once(master: Master) -> None:
    asks = _child(call("ask_parent", question="Tabs or spaces?"), complete("formatted"), name="Asks")
    waits = _child(call("wait_for_message"), complete("gone on"), name="Waits")
    await master.call("spawn_child", wait=False, **asks)
    await master.call("spawn_child", key="w", timeout_s=0.05, **waits)
    await master.orchestrated.harness.database.execute("UPDATE orchestrations SET master_waits = '{}'")
    await master.orchestrated.settle()
    assert "Tabs or spaces?" in (await master.call("spawn_child", key="w", **waits)).json()["text"]


async def test_an_idle_master_is_killed_with_its_tree(orchestrated: Orchestrated) -> None:
    master = Master(orchestrated, await orchestrated.start(master="external", master_idle_seconds=60))
    await master.call("spawn_child", wait=False, **_child(call("ask_user", question="?"), name="One"))
    await orchestrated.settle()
    await orchestrated.harness.ticker.tick()
    assert (await orchestrated.get(master.id))["finished_at"] is None
    await orchestrated.harness.database.execute(
        "UPDATE orchestrations SET master_seen_at = now() - interval '61 seconds' WHERE id = :id", id=master.id
    )
    await orchestrated.harness.ticker.tick()
    view = await orchestrated.get(master.id)
    assert (view["state"], view["agents"]) == ("KILLED", {"KILLED": 2})
    assert "sent no request for 60 s" in view["error"]["message"]


async def test_an_idle_master_whose_children_are_all_complete_is_complete(orchestrated: Orchestrated) -> None:
    master = Master(orchestrated, await orchestrated.start(master="external", master_idle_seconds=60))
    await master.call("spawn_child", wait=False, **_child(complete("part one"), name="One"))
    await orchestrated.settle()
    await orchestrated.harness.database.execute(
        "UPDATE orchestrations SET master_seen_at = now() - interval '61 seconds' WHERE id = :id", id=master.id
    )
    await orchestrated.harness.ticker.tick()
    view = await orchestrated.get(master.id)
    assert (view["state"], view["agents"]) == ("COMPLETED", {"COMPLETED": 2})
    assert view["finished_at"] is not None
    assert "One: part one" in view["summary"]
    assert "sent no request for 60 s" in view["summary"]


async def test_a_spent_time_budget_kills_also_where_an_idle_master_had_only_to_sum_up(
    orchestrated: Orchestrated,
) -> None:
    master = Master(orchestrated, await orchestrated.start(master="external", master_idle_seconds=60))
    await master.call("spawn_child", wait=False, **_child(complete("part one"), name="One"))
    await orchestrated.settle()
    await orchestrated.harness.database.execute(
        "UPDATE orchestrations SET master_seen_at = now() - interval '61 seconds', deadline_at = now() WHERE id = :id",
        id=master.id,
    )
    await orchestrated.harness.ticker.tick()
    view = await orchestrated.get(master.id)
    assert (view["state"], view["agents"]) == ("KILLED", {"COMPLETED": 1, "KILLED": 1})
    assert "time budget" in view["error"]["message"]


async def test_a_master_completes_by_a_tool_too(master: Master) -> None:
    refused = await master.call("task_complete", summary=" ")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    for _ in range(2):
        answer = await master.call("task_complete", key="once", summary="All done.", artifacts={"file": "a.md"})
        assert (answer.status_code, answer.json()["text"]) == (200, "The orchestration is complete.")
    view = await master.orchestrated.get(master.id)
    assert (view["state"], view["summary"]) == ("COMPLETED", "All done.")


async def test_a_kill_ends_a_waiting_call(master: Master) -> None:
    await master.call("spawn_child", wait=False, **_child(call("ask_user", question="?"), name="One"))
    waiting = asyncio.create_task(master.call("wait_for_message"))
    await until(lambda: master.orchestrated.api.state.services.hub.open_feeds == 1)
    await master.orchestrated.post(master.id, "/kill")
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (409, "orchestration_error")
    states = (await master.orchestrated.get(master.id))["agents"]
    assert set(states) <= set(ENDED_AGENTS)


async def test_an_ended_external_master_is_not_continued(master: Master) -> None:
    await master.orchestrated.post(master.id, "/kill")
    answer = await master.orchestrated.api.http.post(f"{PATH}/{master.id}/continue", json={"task": "x"})
    assert (answer.status_code, answer.json()["code"]) == (409, "agent_spawn_error")


async def test_the_same_key_starts_one_external_orchestration(orchestrated: Orchestrated) -> None:
    body, headers = {"agent_id": "scripted", "task": "t", "master": "external"}, {"Idempotency-Key": "e1"}
    first, again = [(await orchestrated.api.http.post(PATH, json=body, headers=headers)) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await orchestrated.api.http.post(PATH, json={**body, "task": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("report_progress", {"status": "x"}, 404),
        ("spawn_child", {}, 422),
        ("check_child_status", {"child_id": "x"}, 404),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused(
    master: Master, tool: str, arguments: dict[str, Any], status: int
) -> None:
    assert (await master.call(tool, **arguments)).status_code == status


async def test_only_external_masters_act_over_http(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(complete("x"))
    answer = await Master(orchestrated, view).call("get_children_status")
    assert (answer.status_code, answer.json()["code"]) == (409, "orchestration_error")


@proves("orchestration.tenants")
async def test_another_tenant_is_no_master(master: Master, api: Api, other_tenant: Tenant) -> None:
    async with api.client(other_tenant.key) as stranger:
        body, headers = {"tool": "get_children_status"}, {"Idempotency-Key": "x"}
        calls = await stranger.post(f"{PATH}/{master.id}/master/calls", json=body, headers=headers)
        ended = await stranger.post(f"{PATH}/{master.id}/master/complete", json={"summary": "mine"})
        assert {calls.status_code, ended.status_code} == {404}


@proves("orchestration.directories")
async def test_an_external_master_gives_children_that_write_a_directory_each(orchestrated: Orchestrated) -> None:
    await orchestrated.harness.add_agent("owner", {"name": "Owner", "engine": "scripted", "trust": "controlled"})
    master = Master(orchestrated, await orchestrated.start(master="external", agent_id="owner"))
    child: dict[str, Any] = {"prompt": script(complete("done")), "wait": False}
    given: tuple[dict[str, Any], ...] = ({"cwd": "a"}, {"cwd": "a"}, {"cwd": "b"}, {})
    answers = [await master.call("spawn_child", **child, **more) for more in given]
    first, refused, second, own = (str(answer.json()) for answer in answers)
    assert "/owner/a" in first
    assert "may write in" in refused
    assert "Give this one a directory of its own, such as cwd=" in refused
    assert "/owner/b" in second
    assert f"/owner/{master.id}/worker" in own
    # A repeated call finds its child, and where that works.
    again = await master.call("spawn_child", key="call-1", **child, cwd="a")
    assert str(again.json()) == first
