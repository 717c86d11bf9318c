"""What clients of the MCP server read: conversations, notes, files and skills."""

from __future__ import annotations

from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import (
    begun,
)
from tests.integration.api.manual_worker import ManualWorker


async def test_conversations_notes_and_skills_can_be_read(api: Api, worker: ManualWorker) -> None:
    client, _, turn = await begun(api, worker)
    await turn.finish("Hello!")
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
