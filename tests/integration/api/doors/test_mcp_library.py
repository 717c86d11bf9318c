"""What clients of the MCP server read: conversations, notes, files and skills."""

from __future__ import annotations

from typing import Any

import pytest

from api.doors.mcp import calls, library, tools
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.engine import EngineError
from nova_workers.domain.files.sql import add_file
from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import BOTH, McpRequests, begun
from tests.integration.api.manual_worker import ManualWorker


async def test_conversations_notes_and_skills_can_be_read(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    sender = Sender(tenant_id=api.tenant.id, agent_id="nova", thread_id=turn.claim.thread_id, run_id=run_id)
    async with worker.database.connection() as connection:
        file = await add_file(connection, sender, name="a.txt", media_type="text/plain", caption=None, content=b"a")
    await turn.finish("Hello!")
    said, link = (await client.task(run_id))["result"]["content"]
    assert (said["text"], link["type"], link["uri"]) == ("Hello!", "resource_link", f"nova://files/{file.id}")
    [read] = (await client.call("resources/read", {"uri": link["uri"]})).result["contents"]
    assert (read["text"], read["mimeType"]) == ("a", "text/plain")
    note = (await api.http.post("/v1/notes", json={"agent_id": "nova", "title": "Plan", "content": "# Plan"})).json()
    first = (await client.call("resources/list")).result
    assert f"nova://threads/{turn.claim.thread_id}" in {resource["uri"] for resource in first["resources"]}
    second = (await client.call("resources/list", {"cursor": first["nextCursor"]})).result
    assert {resource["uri"] for resource in second["resources"]} == {f"nova://notes/{note['id']}"}
    [read] = (await client.call("resources/read", {"uri": f"nova://notes/{note['id']}"})).result["contents"]
    assert read["text"] == "# Plan"
    thread = {"uri": f"nova://threads/{turn.claim.thread_id}"}
    [read] = (await client.call("resources/read", thread)).result["contents"]
    assert "Hello!" in read["text"]
    assert (await client.call("prompts/list")).result["prompts"] == []


async def test_skills_are_prompts(api: Api) -> None:
    client = McpRequests(api.http)
    skill = "---\nname: release\ndescription: Cut a release.\n---\nTag it first."
    assert (await api.http.put("/v1/skills/release", json={"skill_md": skill})).is_success
    [prompt] = (await client.call("prompts/list")).result["prompts"]
    assert (prompt["name"], prompt["description"]) == ("release", "Cut a release.")
    given = {"name": "release", "arguments": {"task": "Release 1.2."}}
    messages = (await client.call("prompts/get", given)).result["messages"]
    assert "Tag it first." in messages[0]["content"]["text"]
    assert messages[1]["content"]["text"] == "Release 1.2."
    unknown = (await client.call("prompts/get", {"name": "none"})).error
    assert (unknown["code"], unknown["data"]["code"]) == (-32602, "not_found")


async def test_a_key_reads_what_its_scopes_permit(api: Api, worker: ManualWorker) -> None:
    _, run_id, turn = await begun(api, worker)
    sender = Sender(tenant_id=api.tenant.id, agent_id="nova", thread_id=turn.claim.thread_id, run_id=run_id)
    async with worker.database.connection() as connection:
        await add_file(connection, sender, name="a.bin", media_type="image/png", caption=None, content=b"\xff")
    await turn.finish("Hello!")
    note = (await api.http.post("/v1/notes", json={"agent_id": "nova", "title": "Plan", "content": "# Plan"})).json()
    keys = [
        (await api.http.post("/v1/keys", json={"name": scope, "scopes": [scope]})).json()["key"]
        for scope in ("runs", "workspace")
    ]
    async with api.client(keys[0]) as of_runs, api.client(keys[1]) as of_workspace:
        runs, workspace = McpRequests(of_runs, BOTH), McpRequests(of_workspace)
        assert await _uris(runs) == {f"nova://threads/{turn.claim.thread_id}"}
        assert len((await runs.task(run_id))["result"]["content"]) == 1
        refused = (await runs.call("resources/read", {"uri": f"nova://notes/{note['id']}"})).error
        assert refused["data"]["code"] == "forbidden"
        assert (await workspace.call("tools/list")).result["tools"] == []
        [of_note, of_file] = sorted(await _uris(workspace), key=lambda uri: "files" in uri)
        assert of_note == f"nova://notes/{note['id']}"
        [read] = (await workspace.call("resources/read", {"uri": of_file})).result["contents"]
        assert (read["blob"], read["mimeType"]) == ("/w==", "image/png")
        templates = (await workspace.call("resources/templates/list")).result["resourceTemplates"]
        assert [each["name"] for each in templates] == ["notes", "files"]


async def test_lists_come_in_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_LISTED", 1)
    monkeypatch.setattr(library, "_PAGE", 1)
    client = McpRequests(api.http)
    for title in ("One", "Two"):
        await api.thread()
        await api.http.post("/v1/notes", json={"agent_id": "nova", "title": title, "content": title})
    assert len(await _uris(client)) == 4
    names = [tool["name"] for tool in await _all(client, "tools")]
    agents = (await api.http.get("/v1/agents")).json()["items"]
    assert names[5:] == [f"ask_{agent['id']}" for agent in agents]
    monkeypatch.setattr(calls, "MAX_LISTED", 1)
    listed: list[Any] = []
    more: dict[str, str] = {}
    while more or not listed:
        page = (await client.tool("list_agents", None, **more)).result["structuredContent"]
        listed += page["agents"]
        more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
    assert [agent["tool"] for agent in listed] == names[5:]
    refused = (await client.tool("list_agents", cursor="nova")).result
    assert (refused["isError"], refused["structuredContent"]["field"]) == (True, "cursor")


async def test_a_result_has_the_files_of_its_run_however_many_came_later(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    thread_id = turn.claim.thread_id
    sent = [await _send_file(api, worker, thread_id, run_id)]
    # A run that fails after it sent a file has no response after it.
    await turn.commit("Here it is.")
    sent.append(await _send_file(api, worker, thread_id, run_id))
    await turn.finish("", "failed", error=EngineError("model_error", "It refused.", retryable=False))
    later = (await client.tool("ask_nova", message="more", thread_id=thread_id)).result["taskId"]
    turn = await worker.claim(thread_id)
    last = [await _send_file(api, worker, thread_id, later) for _ in range(51)]
    await turn.finish("Hello!")
    for task_id, files in ((run_id, sent), (later, last)):
        links = (await client.task(task_id))["result"]["content"][1:]
        assert [link["uri"] for link in links] == [f"nova://files/{file_id}" for file_id in files]


async def _send_file(api: Api, worker: ManualWorker, thread_id: str, run_id: str) -> str:
    sender = Sender(tenant_id=api.tenant.id, agent_id="nova", thread_id=thread_id, run_id=run_id)
    async with worker.database.connection() as connection:
        file = await add_file(connection, sender, name="a", media_type="text/plain", caption=None, content=b"a")
    return file.id


async def _uris(client: McpRequests) -> set[str]:
    return {resource["uri"] for resource in await _all(client, "resources")}


async def _all(client: McpRequests, what: str) -> list[Any]:
    """Return a whole list, by its pages."""
    found: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.call(f"{what}/list", cursor)).result
        found += page[what]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}
