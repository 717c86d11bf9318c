"""What LangGraph's SDK calls of assistants and threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError, AuthenticationError, ConflictError, NotFoundError

from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.requirements import proves


@pytest.fixture
async def sdk(api: Api) -> AsyncGenerator[LangGraphClient]:
    """The SDK with the tenant's key."""
    async with get_client(url=f"{api.url}/langgraph", api_key=api.tenant.key) as client:
        yield client


async def said(api: Api, worker: ManualWorker, thread_id: str, text: str, answer: str) -> str:
    """Let the agent of a thread of ours answer a message, and return the run."""
    run_id = await api.run(thread_id, text)
    await worker.play(thread_id, answer)
    return run_id


def texts(values: Any) -> list[tuple[str, str]]:
    """Return who said what."""
    return [(message["type"], message["content"]) for message in values["messages"]]


async def test_the_key_is_taken_from_the_header_that_clients_send(api: Api, other_tenant: Tenant) -> None:
    mine, theirs = api.tenant.key, other_tenant.key
    async with api.client(None) as http:

        async def status(path: str = "/langgraph/ok", **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await http.get(path, headers=named)).status_code

        assert await status(X_Api_Key=mine) == 200
        assert await status(x_api_key=mine) == 200
        assert await status(Authorization=f"Bearer {mine}") == 200
        assert await status(X_API_KEY=mine, Authorization=f"Bearer {mine}") == 200
        assert await status(X_Api_Key=mine, Authorization=f"Bearer {theirs}") == 401
        assert await status(X_Api_Key="nova_wrong", Authorization=f"Bearer {mine}") == 401
        assert await status(X_Api_Key="", Authorization=f"Bearer {mine}") == 200
        twice = await http.get("/langgraph/ok", headers=[("X-Api-Key", mine), ("X-Api-Key", theirs)])
        assert twice.status_code == 401
        assert "different keys" in twice.json()["detail"]
        # Only this door takes it.
        assert await status("/v1/agents", X_Api_Key=mine) == 401
        assert await status("/openai/v1/models", X_Api_Key=mine) == 401


async def test_agents_are_assistants(api: Api, sdk: LangGraphClient) -> None:
    assert (await api.http.post("/v1/agents", json={"id": "painter", "name": "The painter"})).is_success
    found = await sdk.assistants.search(limit=100)
    assert {"nova", "painter"} <= {assistant["assistant_id"] for assistant in found}
    painter = await sdk.assistants.get("painter")
    assert (painter["name"], painter["graph_id"], painter["version"]) == ("The painter", "painter", 1)
    assert [each["assistant_id"] for each in await sdk.assistants.search(name="paint")] == ["painter"]
    assert await sdk.assistants.search(metadata={"created_by": "me"}) == []
    assert await sdk.assistants.count() == len(found)
    page = await sdk.assistants.search(limit=1, response_format="object")
    assert (len(page["assistants"]), page["next"]) == (1, "1")
    with pytest.raises(NotFoundError):
        await sdk.assistants.get("stranger")


async def test_a_thread_has_the_id_that_its_client_gives_it(api: Api, sdk: LangGraphClient) -> None:
    own = str(uuid4())
    made: Any = await sdk.threads.create(thread_id=own, metadata={"user": "ada"}, graph_id="nova")
    assert (made["thread_id"], made["status"], made["metadata"]["user"]) == (own, "idle", "ada")
    with pytest.raises(ConflictError):
        await sdk.threads.create(thread_id=own)
    assert (await sdk.threads.create(thread_id=own, if_exists="do_nothing"))["created_at"] == made["created_at"]
    await sdk.threads.update(own, metadata={"topic": "walls"})
    metadata: Any = (await sdk.threads.get(own))["metadata"]
    assert (metadata["user"], metadata["topic"], metadata["graph_id"]) == ("ada", "walls", "nova")
    await sdk.threads.create()
    assert [each["thread_id"] for each in await sdk.threads.search(metadata={"user": "ada"})] == [own]
    assert [each["thread_id"] for each in await sdk.threads.search(limit=1, offset=1)] == [own]
    assert await sdk.threads.search(status="busy") == []
    assert await sdk.threads.count() == 2
    await sdk.threads.delete(own)
    with pytest.raises(NotFoundError):
        await sdk.threads.get(own)


async def test_a_thread_shows_what_was_said_and_its_states_before(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    assert (await sdk.threads.get_state(thread_id))["values"] == {"messages": []}
    first = await said(api, worker, thread_id, "Paint.", "Which colour?")
    second = await said(api, worker, thread_id, "Blue.", "Done.")
    whole = [("human", "Paint."), ("ai", "Which colour?"), ("human", "Blue."), ("ai", "Done.")]
    state = await sdk.threads.get_state(thread_id)
    assert (texts(state["values"]), list(state["next"])) == (whole, [])
    assert state["checkpoint"]["checkpoint_id"] == second
    assert texts((await sdk.threads.get(thread_id))["values"]) == whole
    history = await sdk.threads.get_history(thread_id)
    assert [texts(each["values"]) for each in history] == [whole, whole[:2]]
    assert [each["checkpoint"]["checkpoint_id"] for each in history] == [second, first]
    [earlier] = await sdk.threads.get_history(thread_id, before=state["checkpoint"])
    assert earlier["checkpoint"] == state["parent_checkpoint"]
    assert texts((await sdk.threads.get_state(thread_id, earlier["checkpoint"]))["values"]) == whole[:2]
    nameless: Any = {"thread_id": thread_id}
    assert texts((await sdk.threads.get_state(thread_id, nameless))["values"]) == whole
    copied: Any = await api.http.post(f"/langgraph/threads/{thread_id}/copy")
    assert texts((await sdk.threads.get(copied.json()["thread_id"]))["values"]) == whole


async def test_an_id_that_cannot_be_stored_is_unknown(api: Api, sdk: LangGraphClient) -> None:
    thread = await sdk.threads.create()
    for path in ("assistants/a%00b", "threads/thr_%00", "threads/a%00b", f"threads/{thread['thread_id']}/state/a%00b"):
        assert (await api.http.get(f"/langgraph/{path}")).status_code == 404, path


async def test_what_the_fleet_has_not_is_a_501_that_says_what_to_do(api: Api, sdk: LangGraphClient) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    batch: Any = [{"assistant_id": "nova", "input": {}}]
    refused = [
        sdk.assistants.create("nova"),
        sdk.assistants.get_graph("nova"),
        sdk.threads.update_state(thread_id, {"messages": []}),
        sdk.threads.search(values={"a": 1}),
        sdk.threads.create(ttl=5),
        sdk.runs.create_batch(batch),
        sdk.store.put_item(["users"], "ada", {"likes": "blue"}),
    ]
    for call in refused:
        with pytest.raises(APIStatusError) as error:
            await call
        assert error.value.status_code == 501
        body: Any = error.value.response.json()
        assert body["code"] == "not_offered"
        assert len(body["detail"]) > 20


@proves("doors.langgraph-threads")
async def test_threads_of_another_tenant_cannot_be_told_from_none(
    api: Api, sdk: LangGraphClient, other_tenant: Tenant
) -> None:
    own = str(uuid4())
    await sdk.threads.create(thread_id=own)
    async with get_client(url=f"{api.url}/langgraph", api_key=other_tenant.key) as stranger:
        theirs, none = [await _refusal(stranger, each) for each in (own, str(uuid4()))]
        assert theirs.replace(own, "") == none.replace(none.split("'")[1], "")
        # An id of a client is its tenant's own.
        assert (await stranger.threads.create(thread_id=own))["thread_id"] == own
    async with get_client(url=f"{api.url}/langgraph", api_key="nova_wrong") as wrong:
        with pytest.raises(AuthenticationError):
            await wrong.threads.get(own)


async def _refusal(client: LangGraphClient, thread_id: str) -> str:
    with pytest.raises(NotFoundError) as error:
        await client.threads.get(thread_id)
    return str(error.value)
