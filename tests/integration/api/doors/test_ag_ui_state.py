"""The state document of a thread at the AG-UI door: which version a client has, and whose change is taken."""

from __future__ import annotations

import asyncio
from typing import Any

from nova_workers.contracts import events as live
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.ag_ui_client import Event, user
from tests.integration.api.doors.ag_ui_streams import DOOR, TOOLS, begun, history, kinds, stream
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves


def shown(events: list[Event]) -> list[dict[str, Any]]:
    """Return the messages of the last snapshot, and what a client makes of the events after it."""
    at = max((at for at, event in enumerate(events) if event["type"] == "MESSAGES_SNAPSHOT"), default=None)
    return history(events) if at is None else [*events[at]["messages"], *history(events[at + 1 :])]


async def document(api: Api, thread_id: str) -> tuple[Any, int]:
    """Return the state of a thread, and its version."""
    found = (await api.http.get(f"/v1/threads/{thread_id}/state")).json()
    return found["state"], found["version"]


async def change(api: Api, thread_id: str, **fields: Any) -> int:
    """Change fields of the state of a thread, and return its version."""
    answer = await api.http.patch(f"/v1/threads/{thread_id}/state", json={"patch": fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


@proves("doors.ag-ui-state")
async def test_the_state_is_the_threads_and_a_client_changes_the_version_that_it_has(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("1")], state={"plan": ["a"]})
    run_id, turn = await begun(api, worker, request)
    thread = turn.claim.thread_id
    where = f"/v1/threads/{thread}/state"
    assert (await api.http.get(where)).json()["state"] == {"plan": ["a"]}
    assert (await api.http.patch(where, json={"patch": {"plan": ["a", "b"], "n": {"x/y": 1}}})).status_code == 200
    await turn.emit(live.StateChange(version=2, patch={"plan": ["a", "b"], "n": {"x/y": 1}}, tool_call_id="toolu_1"))
    await turn.finish("one")
    events = await stream(api, request)
    document = {"plan": ["a", "b"], "n": {"x/y": 1}}
    (shown,) = [event for event in events if event["type"] in {"STATE_SNAPSHOT", "STATE_DELTA"}]
    assert shown.get("snapshot") == document
    messages = [user("1"), *history(events)]
    assert messages[-1]["metadata"] == {"nova": {"stateVersion": 2}}
    # The version that the client has is the newest: its change is taken.
    changed = {**document, "n": None}
    second = DOOR.input([*messages, user("2", "u2")], run="run-2", state=changed)
    reading = asyncio.create_task(stream(api, second))
    _, turn = await begun(api, worker, second)
    found = (await api.http.get(where)).json()
    assert (found["state"], found["version"]) == (changed, 3)
    await api.http.put(where, json={"state": {"plan": []}, "version": 3})
    await turn.emit(live.StateChange(version=4, state={"plan": []}, tool_call_id="toolu_1"))
    await turn.finish("two")
    events = await reading
    assert [event["type"] for event in events if event["type"].startswith("STATE_")] in (
        ["STATE_DELTA"],
        ["STATE_SNAPSHOT"],
    )
    # A client that has an older version gets the document in place of its change.
    third = DOOR.input([*messages, user("3", "u3")], run="run-3", state={"plan": "mine"})
    _, turn = await begun(api, worker, third)
    await turn.finish("three")
    (shown,) = [event for event in await stream(api, third) if event["type"] == "STATE_SNAPSHOT"]
    assert shown["snapshot"] == {"plan": []}
    assert (await api.http.get(where)).json()["version"] == 4
    assert run_id


@proves("doors.ag-ui-state")
async def test_a_client_that_loads_the_conversation_may_change_the_version_that_it_got(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("1")], state={"a": 1})
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    messages = [user("1"), *history(await stream(api, request))]
    assert await change(api, turn.claim.thread_id, a=2) == 2
    loaded = await stream(api, DOOR.input(messages, run="load", state={"a": 1}))
    assert kinds(loaded) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    messages = loaded[2]["messages"]
    again = await stream(api, DOOR.input(messages, run="load-2", state={"a": 2}))
    assert kinds(again) == ["RUN_STARTED", "RUN_FINISHED"], "the client has all of it"
    await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2", state={"a": 3}))
    assert await document(api, turn.claim.thread_id) == ({"a": 3}, 3)


@proves("doors.ag-ui-state")
async def test_a_step_that_only_calls_says_the_version_too(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")], state={"a": 1}, tools=TOOLS)
    _, turn = await begun(api, worker, request)
    thread_id = turn.claim.thread_id
    reading = asyncio.create_task(stream(api, request))
    assert await change(api, thread_id, a=2) == 2
    await turn.emit(live.StateChange(version=2, patch={"a": 2}, tool_call_id="toolu_0"))
    await turn.suspend("", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))
    await turn.emit(live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting"))
    events = await reading
    assert "MESSAGES_SNAPSHOT" not in kinds(events)
    (call,) = events[-1]["outcome"]["pendingToolCallIds"]
    result = {"id": "t1", "role": "tool", "toolCallId": call, "content": "rain"}
    answering = DOOR.input([user("1"), *shown(events), result], run="run-2", state={"a": 3})
    assert (await DOOR.post(api.http, answering)).status_code == 200
    assert await document(api, thread_id) == ({"a": 3}, 3)


@proves("doors.ag-ui-state")
async def test_a_change_after_the_last_message_is_said_with_the_conversation(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")], state={"a": 1})
    _, turn = await begun(api, worker, request)
    reading = asyncio.create_task(stream(api, request))
    await turn.emit(live.Token(text="Look"))
    await turn.commit(
        "Look", ToolCall("toolu_1", "ask_agent", {}, 0, 0, "completed", ({"type": "text", "text": "ok"},))
    )
    await turn.emit(live.Token(text="Done"))
    await turn.commit("Done")
    # By a subagent, whose events are not of this run.
    assert await change(api, turn.claim.thread_id, a=2) == 2
    await turn.finish("")
    events = await reading
    assert events[-1]["type"] == "RUN_FINISHED"
    messages = shown(events)
    assert [message.get("content") for message in messages] == ["1", "Look", "ok", "Done"]
    await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2", state={"a": 3}))
    assert await document(api, turn.claim.thread_id) == ({"a": 3}, 3)


@proves("doors.ag-ui-state")
async def test_the_last_version_counts_and_not_one_of_a_deleted_thread(api: Api, worker: ManualWorker) -> None:
    messages, thread_id = [user("1")], ""
    for version in range(1, 4):
        request = DOOR.input([user("1")], run=f"old-{version}", state={"a": version})
        _, turn = await begun(api, worker, request)
        await turn.finish("one")
        thread_id, messages = turn.claim.thread_id, [user("1"), *history(await stream(api, request))]
        if version < 3:
            await change(api, thread_id, b=version)
    assert messages[-1]["metadata"]["nova"]["stateVersion"] > 2
    await api.http.delete(f"/v1/threads/{thread_id}")
    first = DOOR.input([*messages, user("2", "u2")], run="new-1", state={"a": "new"})
    _, turn = await begun(api, worker, first)
    assert await document(api, turn.claim.thread_id) == ({"a": "new"}, 1)
    await turn.finish("two")
    messages = [*messages, user("2", "u2"), *history(await stream(api, first))]
    _, turn = await begun(api, worker, DOOR.input([*messages, user("3", "u3")], run="new-2", state={"a": "newer"}))
    assert await document(api, turn.claim.thread_id) == ({"a": "newer"}, 2)


@proves("doors.ag-ui-state")
async def test_a_branch_takes_the_change_of_the_version_that_it_copied(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("1")], state={"a": 1})
    _, turn = await begun(api, worker, request)
    await turn.finish("one")
    assert await change(api, turn.claim.thread_id, a=2) == 2
    messages = (await stream(api, DOOR.input([], run="load")))[2]["messages"]
    _, later = await begun(api, worker, DOOR.input([*messages, user("2", "u2")], run="run-2", state={"a": 2}))
    await later.finish("two")
    branch = DOOR.input([*messages, user("3", "u3")], run="run-3", parentRunId="run-1", state={"a": "branch"})
    _, forked = await begun(api, worker, branch)
    assert forked.claim.thread_id != turn.claim.thread_id
    assert await document(api, forked.claim.thread_id) == ({"a": "branch"}, 3)
    assert await document(api, turn.claim.thread_id) == ({"a": 2}, 2)
    await forked.finish("three")
    assert "STATE_SNAPSHOT" not in kinds(await stream(api, branch))
    audit = (await api.http.get("/v1/audit", params={"target_kind": "thread_state"})).json()["items"]
    assert {each["actor_id"] for each in audit} == {api.tenant.key_id}
    assert (forked.claim.thread_id, "thread_state.updated") in {(each["target_id"], each["action"]) for each in audit}
