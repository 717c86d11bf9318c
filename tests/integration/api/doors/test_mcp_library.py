"""What clients of the MCP server read: conversations, notes, files and skills."""

from __future__ import annotations

from nova_workers.contracts.deliveries import Sender
from nova_workers.domain.files.sql import add_file
from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import (
    begun,
)
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
