"""Agents over HTTP: configuration in versions."""

from tests.integration.api.conftest import Api


async def test_a_tenant_begins_with_the_default_agents(api: Api) -> None:
    answer = await api.http.get("/v1/agents")
    agents = {agent["id"]: agent["spec"] for agent in answer.json()["items"]}
    assert set(agents) == {"nova", "agent-builder"}
    assert agents["nova"]["trust"] == "controlled"
    assert set(agents["nova"]["capabilities"]) == {"memory"}
    assert agents["agent-builder"]["trust"] == "sandbox"


async def test_an_agent_is_made_replaced_and_rolled_back(api: Api) -> None:
    made = await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout", "instructions": "first"})
    assert made.status_code == 201
    assert made.json()["version"] == 1
    replaced = await api.http.put("/v1/agents/scout", json={"name": "Scout", "instructions": "second"})
    assert replaced.json()["version"] == 2
    back = await api.http.post("/v1/agents/scout/rollback", json={"version": 1})
    assert back.json()["version"] == 3
    assert back.json()["spec"]["instructions"] == "first"
    versions = await api.http.get("/v1/agents/scout/versions")
    assert [each["version"] for each in versions.json()["items"]] == [3, 2, 1]
    assert (await api.http.get("/v1/agents/scout")).json()["spec"]["instructions"] == "first"


async def test_putting_the_same_configuration_again_makes_no_version(api: Api) -> None:
    spec = {"name": "Scout", "responsibilities": [{"title": "look", "content": "around"}]}
    await api.http.post("/v1/agents", json={"id": "scout", **spec})
    again = await api.http.put("/v1/agents/scout", json=spec)
    assert again.status_code == 200
    assert again.json()["version"] == 1


async def test_an_id_that_is_taken_is_a_conflict(api: Api) -> None:
    answer = await api.http.post("/v1/agents", json={"id": "nova", "name": "Other"})
    assert answer.status_code == 409
    assert "'nova'" in answer.json()["detail"]


async def test_a_deleted_agent_is_gone_and_its_id_is_free_again(api: Api) -> None:
    thread_id = await api.thread(agent_id="agent-builder")
    assert (await api.http.delete("/v1/agents/agent-builder")).status_code == 204
    assert (await api.http.get("/v1/agents/agent-builder")).status_code == 410
    assert (await api.http.delete("/v1/agents/agent-builder")).status_code == 410
    refused = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello"})
    assert refused.status_code == 410
    made = await api.http.post("/v1/agents", json={"id": "agent-builder", "name": "Another"})
    assert made.status_code == 201
    assert made.json()["version"] == 2, "versions count on, since runs name them"


async def test_a_version_that_never_was_is_not_found(api: Api) -> None:
    answer = await api.http.post("/v1/agents/nova/rollback", json={"version": 9})
    assert answer.status_code == 404
    assert "version 9" in answer.json()["detail"]


async def test_an_unknown_capability_is_refused_by_name(api: Api) -> None:
    answer = await api.http.post("/v1/agents", json={"id": "x", "name": "X", "capabilities": {"teleport": {}}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "capabilities.teleport"


async def test_capabilities_are_discovered_with_their_tools(api: Api) -> None:
    answer = await api.http.get("/v1/capabilities")
    found = {item["name"]: item for item in answer.json()["items"]}
    assert {"name", "description", "idempotent", "read_only"} <= set(found["memory"]["tools"][0])
