"""Threads of the AG-UI door: names of clients, branches, and what a refusal leaves."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.contracts.waits import AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.ag_ui_client import user
from tests.integration.api.doors.ag_ui_streams import DOOR, TOOLS, begun, history, kinds, stream
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves
from tests.support.waiting import stays


async def test_a_parent_or_a_new_thread_with_the_history_of_another_makes_a_branch(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("1")])
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    messages = [user("1"), *history(await stream(api, request))]
    _, turn = await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2"))
    await turn.finish("two")
    branch = DOOR.input([*messages, user("other", "u3")], run="run-3", parentRunId="run-1")
    _, forked = await begun(api, worker, branch)
    assert forked.claim.thread_id != turn.claim.thread_id
    await forked.finish("three")
    events = await stream(api, branch)
    assert events[0]["parentRunId"] == "run-1"
    assert "MESSAGES_SNAPSHOT" not in kinds(events)
    named = DOOR.input([*messages, user("again", "u4")], run="run-4", thread="thread-2")
    _, forked = await begun(api, worker, named)
    forked_from = (await api.http.get(f"/v1/threads/{forked.claim.thread_id}")).json()["forked_from_thread_id"]
    assert forked_from == turn.claim.thread_id


async def test_a_conversation_that_took_place_elsewhere_begins_a_new_thread(api: Api, worker: ManualWorker) -> None:
    elsewhere = [
        {"id": "hi", "role": "assistant", "content": "How can I help?"},
        user("1"),
        {"id": "a1", "role": "assistant", "content": "one"},
    ]
    request = DOOR.input([*elsewhere, user("2", "u2")])
    _, turn = await begun(api, worker, request)
    await turn.finish("two")
    events = await stream(api, request)
    assert "MESSAGES_SNAPSHOT" not in kinds(events)
    third = DOOR.input([*elsewhere, user("2", "u2"), *history(events), user("3", "u3")], run="run-3")
    _, turn = await begun(api, worker, third)
    await turn.finish("three")
    assert "MESSAGES_SNAPSHOT" not in kinds(await stream(api, third))
    (_, loaded, _) = await stream(api, DOOR.input([], run="load"))
    shown = [message["content"] for message in loaded["messages"]]
    assert shown == ["[The conversation begins.]", "How can I help?", "1", "one", "2", "two", "3", "three"]


@proves("doors.ag-ui")
async def test_a_branch_by_a_new_thread_id_is_the_thread_of_that_id(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")])
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    messages = [user("1"), *history(await stream(api, request))]
    # The run is the last one of its thread: the branch is another thread all the same.
    first = DOOR.input([*messages, user("2", "u2")], run="run-2", thread="thread-2")
    _, branch = await begun(api, worker, first)
    assert branch.claim.thread_id != turn.claim.thread_id
    await branch.finish("two")
    thread = (await api.http.get(f"/v1/threads/{branch.claim.thread_id}")).json()
    assert (thread["label"], thread["forked_from_thread_id"]) == ("ag-ui/nova/thread-2", turn.claim.thread_id)
    loaded = await stream(api, DOOR.input([], run="load", thread="thread-2"))
    assert [message["content"] for message in loaded[1]["messages"]] == ["1", "one", "2", "two"]
    _, next_ = await begun(api, worker, DOOR.input([user("3", "u3")], run="run-3", thread="thread-2"))
    assert next_.claim.thread_id == branch.claim.thread_id


@proves("doors.ag-ui")
async def test_first_messages_at_the_same_time_are_of_one_thread(api: Api) -> None:
    requests = [DOOR.input([user(f"{at % 3}")], run=f"run-{at % 3}") for at in range(6)]
    sent = await asyncio.gather(*(DOOR.post(api.http, request) for request in requests))
    assert [answer.status_code for answer in sent] == [200] * 6
    assert (await api.count("threads"), await api.count("runs")) == (1, 3)


@proves("doors.ag-ui")
@pytest.mark.parametrize("beginning", [{}, {"thread": "thread-2"}, {"parentRunId": "run-1"}])
async def test_a_refused_message_leaves_no_thread_no_branch_and_no_state(
    api: Api, worker: ManualWorker, beginning: dict[str, str]
) -> None:
    request = DOOR.input([user("1")], state={"a": 1})
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    messages = [user("1"), *history(await stream(api, request))]
    _, later = await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2"))
    await later.finish("two")
    # Only where the run is made is it known that the agent has a tool of this name.
    clash = [{**TOOLS[0], "name": "ask_user"}]
    asked = DOOR.input([*messages, user("3", "u3")], run="run-3", state={"a": 2}, tools=clash, **beginning)
    assert DOOR.refusal_of(await asked.send(api.http)) == ("invalid_input", "tools.0.name", 422)
    assert await api.count("threads") == 1
    state = (await api.http.get(f"/v1/threads/{turn.claim.thread_id}/state")).json()
    assert (state["state"], state["version"]) == ({"a": 1}, 1)


@proves("doors.ag-ui-answers")
async def test_refused_results_change_no_state_and_those_that_are_taken_do(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")], tools=TOOLS, state={"a": 1})
    run_id, turn = await begun(api, worker, request)
    await turn.suspend("", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))
    events = await stream(api, request)
    (call,) = events[-1]["outcome"]["pendingToolCallIds"]
    messages = [user("1"), *history(events)]
    where = f"/v1/threads/{turn.claim.thread_id}/state"
    good = {"id": "t1", "role": "tool", "toolCallId": call, "content": "rain"}
    bad = {**good, "content": "a" * 3_000_000}
    refused = await DOOR.input([*messages, bad], run="run-2", state={"a": 2}).send(api.http)
    assert DOOR.refusal_of(refused).is_like(422, "invalid_input"), refused.text
    assert (await api.http.get(where)).json()["version"] == 1
    answering = DOOR.input([*messages, good], run="run-2", state={"a": 2})
    assert (await DOOR.post(api.http, answering)).status_code == 200
    assert (await api.http.get(where)).json()["state"] == {"a": 2}
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


@proves("doors.ag-ui-answers")
async def test_what_a_run_asks_is_answered_in_its_own_thread_alone(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")])
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    messages = [user("1"), *history(await stream(api, request))]
    _, later = await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2"))
    await later.finish("two")
    branch = DOOR.input([*messages, user("3", "u3")], run="run-3", parentRunId="run-1")
    run_id, turn = await begun(api, worker, branch)
    await turn.suspend("", NewWait("toolu_1", AskUser(question="Which one?")))
    (asked,) = (await stream(api, branch))[-1]["outcome"]["interrupts"]
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": "b"}
    await DOOR.post(api.http, DOOR.input([user("1")], run="other", thread="thread-2"))
    for thread in ("thread-2", "thread-3"):
        elsewhere = DOOR.input(messages, run="run-4", thread=thread, resume=[entry])
        assert DOOR.refusal_of(await elsewhere.send(api.http)).is_like(404, "not_found")
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting"
    # Nor is a branch of it made by the name of another thread.
    foreign = DOOR.input([*messages, user("4", "u4")], run="run-5", thread="thread-2", parentRunId="run-1")
    other_id = await DOOR.run_id_of(api.http, await DOOR.post(api.http, foreign))
    other = (await api.http.get(f"/v1/runs/{other_id}")).json()["thread_id"]
    assert (await api.http.get(f"/v1/threads/{other}")).json()["label"] == "ag-ui/nova/thread-2"
    answer = DOOR.input(messages, run="run-4", resume=[entry])
    assert (await DOOR.post(api.http, answer)).status_code == 200
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


async def test_a_client_that_joins_a_conversation_whose_run_has_no_worker_gets_its_answer(
    api: Api, worker: ManualWorker
) -> None:
    _, turn = await begun(api, worker, DOOR.input([user("1")]))
    await turn.commit("I begin.")
    # Its worker stops, and another one goes on.
    await turn.requeue()
    joining = asyncio.create_task(stream(api, DOOR.input([], run="load")))
    await stays(lambda: not joining.done(), for_s=0.3)
    again = await worker.claim(turn.claim.thread_id)
    again.step, again.seq = turn.step, turn.seq
    await again.finish("I am done.")
    assert "I am done." in str(await joining)
