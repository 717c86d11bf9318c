"""Agents over HTTP: configuration in versions."""

import asyncio
from typing import Any

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.default_agents import DEFAULT_AGENTS
from nova_workers.domain.agents.rules import service as workspace
from nova_workers.domain.agents.rules.rules import check_spec
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves
from tests.support.harness.tool_server import tool_server

Json = dict[str, Any]

DUTY = {"title": "Look", "content": "around"}


async def test_a_new_tenant_has_the_default_agents(api: Api) -> None:
    answer = await api.http.get("/v1/agents")
    agents = {agent["id"]: agent["spec"] for agent in answer.json()["items"]}
    assert set(agents) == {"nova", "agent-builder"}
    assert agents["nova"]["trust"] == "controlled"
    assert {"memory", "self"} <= set(agents["nova"]["capabilities"])
    assert agents["agent-builder"]["trust"] == "sandbox"
    assert {"agent-management", "self"} <= set(agents["agent-builder"]["capabilities"])
    assert {agent["created_by"] for agent in answer.json()["items"]} == {"seed"}


@pytest.mark.usefixtures("own_api")
async def test_the_default_agents_pass_validation(api: Api) -> None:
    registry = default_registry(
        api.state.services.database, api.state.services.settings, SystemClock(), serve=tool_server()
    )
    for spec in DEFAULT_AGENTS.values():
        check_spec(spec)
        registry.validate(spec)
        assert spec.skills == (), "a new tenant has no library"


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


async def test_a_removed_engine_does_not_prevent_other_changes(api: Api, database: Database) -> None:
    await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout", "engine": "claude_agent"})
    await database.execute("UPDATE agents SET spec = jsonb_set(spec, '{engine}', '\"abacus\"') WHERE id = 'scout'")
    renamed = await api.http.patch("/v1/agents/scout", json={"name": "Ranger"})
    assert renamed.json()["spec"]["engine"] == "abacus"
    refused = await api.http.patch("/v1/agents/scout", json={"engine": "rocket"})
    assert refused.status_code == 422
    engines = "anthropic, claude_agent, code, codex, gemini, openai, scripted"
    assert f"'rocket'; there are {engines}" in refused.json()["detail"]


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


@pytest.mark.usefixtures("own_api")
async def test_an_agent_that_takes_the_id_of_another_inherits_nothing_that_starts_it(api: Api) -> None:
    create = "/v1/agents", {"id": "clerk", "name": "Clerk"}
    assert (await api.http.post(create[0], json=create[1])).status_code == 201
    trigger = {"agent_id": "clerk", "kind": "every", "schedule": "60", "prompt": "hello"}
    trigger_id = (await api.http.post("/v1/triggers", json=trigger)).json()["id"]
    task = {"title": "Sort the mail", "owner_agent_id": "clerk", "status": "active"}
    task_id = (await api.http.post("/v1/tasks", json=task)).json()["id"]
    await api.http.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "clerk"})
    run = (await api.http.post("/v1/runs", json={"agent_id": "clerk", "message": "hello"})).json()
    assert (await api.http.delete("/v1/agents/clerk")).status_code == 204
    assert (await api.http.post(create[0], json=create[1])).status_code == 201
    assert (await api.http.get(f"/v1/triggers/{trigger_id}")).status_code == 410
    assert (await api.http.get("/v1/triggers", params={"agent_id": "clerk"})).json()["items"] == []
    assert (await api.http.get(f"/v1/runs/{run['id']}")).json()["status"] == "canceled"
    assert (await api.http.get("/v1/fleet")).json()["switches"] == []
    parked = (await api.http.get(f"/v1/tasks/{task_id}")).json()
    assert parked["parked_reason"] == f"Agent 'clerk', who owns task {task_id}, was deleted."


async def test_an_unknown_version_is_not_found(api: Api) -> None:
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


@proves("agents.versions")
async def test_every_version_has_its_author_and_can_be_read(api: Api) -> None:
    await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout", "instructions": "first"})
    await api.http.patch("/v1/agents/scout", json={"instructions": "second"})
    first, second = reversed((await api.http.get("/v1/agents/scout/versions")).json()["items"])
    assert [each["created_by"] for each in (first, second)] == ["person", "person"]
    assert first["created_at"] < second["created_at"]
    assert (await api.http.get("/v1/agents/scout/versions/1")).json() == first
    assert (await api.http.get("/v1/agents/scout/versions/3")).status_code == 404
    assert (await api.http.get("/v1/agents/scout/versions/0")).status_code == 422
    assert (await api.http.get(f"/v1/agents/scout/versions/{2**40}")).status_code == 422


async def test_a_patch_changes_the_fields_that_it_names(api: Api) -> None:
    spec = {"name": "Scout", "model": "opus", "instructions": "look", "responsibilities": [DUTY]}
    await api.http.post("/v1/agents", json={"id": "scout", **spec})
    changed = await api.http.patch("/v1/agents/scout", json={"model": None, "responsibilities": []})
    assert changed.status_code == 200
    after = changed.json()["spec"]
    assert (changed.json()["version"], after["model"], after["responsibilities"]) == (2, None, [])
    assert (after["name"], after["instructions"]) == ("Scout", "look")
    assert (await api.http.patch("/v1/agents/scout", json={})).json()["version"] == 2
    assert (await api.http.patch("/v1/agents/nobody", json={})).status_code == 404


async def test_concurrent_patches_are_all_kept(api: Api) -> None:
    await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout"})
    fields: Json = {"description": "d", "identity": "i", "instructions": "x", "model": "m", "max_turns": 3}
    answers = await asyncio.gather(
        *(api.http.patch("/v1/agents/scout", json={field: value}) for field, value in fields.items())
    )
    assert sorted(answer.json()["version"] for answer in answers) == [2, 3, 4, 5, 6]
    spec = (await api.http.get("/v1/agents/scout")).json()["spec"]
    assert {field: spec[field] for field in fields} == fields


@proves("agents.if-match")
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_change_that_follows_another_version_is_refused_with_both_named(api: Api, method: str) -> None:
    made = await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout"})
    tag = made.headers["etag"]
    assert tag == '"1"'
    first = await api.http.request(method, "/v1/agents/scout", json={"name": "One"}, headers={"If-Match": tag})
    assert (first.status_code, first.headers["etag"]) == (200, '"2"')
    late = await api.http.request(method, "/v1/agents/scout", json={"name": "Two"}, headers={"If-Match": tag})
    assert late.status_code == 412
    assert late.json()["code"] == "version_mismatch"
    assert late.json()["context"] == {"agent_id": "scout", "version": 2, "expected": 1}
    assert (await api.http.get("/v1/agents/scout")).json()["spec"]["name"] == "One"
    for any_version in ("*", None):
        headers = {} if any_version is None else {"If-Match": any_version}
        free = await api.http.request(method, "/v1/agents/scout", json={"name": f"{any_version}"}, headers=headers)
        assert free.status_code == 200


async def test_an_if_match_that_is_no_version_is_refused(api: Api) -> None:
    for tag in ("", "0", "one", '"1", "2"', 'W/"1"', "-1", "9" * 30):
        answer = await api.http.patch("/v1/agents/nova", json={"name": "x"}, headers={"If-Match": tag})
        assert answer.status_code == 422, tag
        assert answer.json()["errors"][0]["field"] == "If-Match"
    assert (await api.http.get("/v1/agents/nova")).json()["version"] == 1


MALFORMED: list[tuple[Json, str]] = [
    ({"name": ""}, "name"),
    ({"name": "  "}, "name"),
    ({"name": "x" * 201}, "name"),
    ({"name": 7}, "name"),
    ({"name": None}, "name"),
    ({"modle": "opus"}, "modle"),
    ({"model": ""}, "model"),
    ({"model": " "}, "model"),
    ({"engine": " "}, "engine"),
    ({"engine": "nosuch"}, "engine"),
    ({"trust": "total"}, "trust"),
    ({"max_turns": 0}, "max_turns"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"thinking_budget_tokens": 1}, "thinking_budget_tokens"),
    ({"temperature": 1.1}, "temperature"),
    ({"temperature": 0.5, "thinking_budget_tokens": 2_000}, "temperature"),
    ({"temperature": 0.5, "engine": "claude_agent"}, "temperature"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"token_budget": 10**30}, "token_budget"),
    ({"cost_budget_usd": -1}, "cost_budget_usd"),
    ({"description": "x" * 2_001}, "description"),
    ({"instructions": ["x"]}, "instructions"),
    ({"responsibilities": [DUTY, {"title": "x"}]}, "responsibilities.1.content"),
    ({"responsibilities": [DUTY, {**DUTY, "title": "b"}, DUTY]}, "responsibilities.2.title"),
    ({"responsibilities": [DUTY, {**DUTY, "title": " lOOK "}]}, "responsibilities.1.title"),
    ({"responsibilities": [{**DUTY, "title": " "}]}, "responsibilities.0.title"),
    ({"responsibilities": [{**DUTY, "title": "a\nb"}]}, "responsibilities.0.title"),
    ({"responsibilities": [{"title": str(at), "content": ""} for at in range(101)]}, "responsibilities"),
    ({"directories": ["/srv", "srv"]}, "directories.1"),
    ({"directories": ["/srv/../etc"]}, "directories.0"),
    ({"directories": ["/srv/"]}, "directories.0"),
    ({"directories": ["//srv"]}, "directories.0"),
    ({"directories": ["/srv", "/srv"]}, "directories.1"),
    ({"directories": ["/a\nb"]}, "directories.0"),
    ({"directories": [""]}, "directories.0"),
    ({"directories": ["~/data"]}, "directories.0"),
    ({"capabilities": {"teleport": {}}}, "capabilities.teleport"),
    ({"capabilities": {"memory": {"tools": ["memory_eat"]}}}, "capabilities.memory.tools"),
    ({"capabilities": {"memory": {"tools": ["memory_list"] * 2}}}, "capabilities.memory.tools.1"),
    ({"capabilities": {"memory": {"config": {"size": 1}}}}, "capabilities.memory.config.size"),
    ({"capabilities": ["memory"]}, "capabilities"),
    ({"skills": ["juggling"]}, "skills.0"),
    ({"skills": ["Not A Name"]}, "skills.0"),
    ({"skills": ["juggling", "juggling"]}, "skills"),
    ({"permissions": {"approvals": [{"tool": "x", "decision": "perhaps"}]}}, "permissions.approvals.0.decision"),
    ({"permissions": {"deny_commands": [""]}}, "permissions.deny_commands.0"),
    ({"subagents": {"a b": {"description": "x", "prompt": "x"}}}, "subagents.a b.[key]"),
    ({"subagents": {"a": {"description": "x"}}}, "subagents.a.prompt"),
    ({"subagents": {"a": {"description": "x", "prompt": "x", "tools": ["fly"]}}}, "subagents.a.tools.0"),
    ({"output_schema": {"type": "thing"}}, "output_schema.type"),
    ({"identity": "a\u0000b"}, "identity"),
]


@proves("agents.malformed")
async def test_a_malformed_agent_is_refused_with_the_field_named_and_nothing_written(api: Api) -> None:
    for field, named in MALFORMED:
        answers = [
            await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout", **field}),
            await api.http.put("/v1/agents/nova", json={"name": "Scout", **field}),
            await api.http.patch("/v1/agents/nova", json=field),
        ]
        for answer in answers:
            assert answer.status_code == 422, (field, answer.text)
            assert named in [error["field"] for error in answer.json()["errors"]], field
    assert (await api.http.get("/v1/agents/scout")).status_code == 404
    assert (await api.http.get("/v1/agents/nova")).json()["version"] == 1


async def test_an_invalid_id_is_refused(api: Api) -> None:
    for agent_id in ("", "A", "a b", "-a", "ä", "a" * 65, "person", "seed", "work-orders", 7):
        answer = await api.http.post("/v1/agents", json={"id": agent_id, "name": "x"})
        assert answer.status_code == 422, agent_id
        assert answer.json()["errors"][0]["field"] == "id"


async def test_a_whole_configuration_comes_back_as_it_was_written(api: Api) -> None:
    spec: Json = {
        "name": "Whole",
        "description": "d",
        "identity": "i",
        "instructions": "x",
        "responsibilities": [DUTY],
        "directories": ["/srv/data"],
        "capabilities": {"memory": {"tools": ["memory_list"], "config": {}}},
        "skills": [],
        "trust": "controlled",
        "native_tools": ["Read", "Grep"],
        "permissions": {
            "approvals": [{"tool": "mcp__*", "pattern": None, "arguments": None, "decision": "ask"}],
            "allow_commands": ["git *"],
            "deny_commands": [],
            "ask_commands": [],
            "unlisted_commands": "deny",
        },
        "model": "opus",
        "engine": "anthropic",
        "engine_config": {"a": [1, None]},
        "max_turns": 5,
        "subagents": {
            "a": {"description": "d", "prompt": "p", "tools": ["memory_list", "Read"], "model": None, "max_turns": 3}
        },
        "max_tokens": 100,
        "temperature": None,
        "thinking_budget_tokens": 2_000,
        "token_budget": 10_000,
        "cost_budget_usd": 0.5,
        "timeout_s": 600,
        "output_schema": {"type": "object"},
        "max_cost_usd_per_day": 2.5,
        "max_running": 3,
        "retention": {"after_days": 90, "keep": "latest"},
    }
    assert set(spec) == set(AgentSpec.model_fields)
    made = await api.http.post("/v1/agents", json={"id": "whole", **spec})
    assert made.json()["spec"] == spec
    assert (await api.http.put("/v1/agents/whole", json=spec)).json()["version"] == 1


@pytest.mark.usefixtures("own_api")
async def test_what_was_removed_from_the_fleet_does_not_block_a_change_of_other_fields(api: Api) -> None:
    await api.http.post("/v1/agents", json={"id": "old", "name": "Old"})
    await api.state.services.database.execute(
        """UPDATE agents SET spec = spec || '{"capabilities": {"gone": {}}, "skills": ["gone"]}' WHERE id = 'old'"""
    )
    assert (await api.http.patch("/v1/agents/old", json={"instructions": "x"})).status_code == 200
    refused = await api.http.patch("/v1/agents/old", json={"capabilities": {"gone": {}, "memory": {}}})
    assert refused.json()["errors"][0]["field"] == "capabilities.gone"
    back = await api.http.post("/v1/agents/old/rollback", json={"version": 2})
    assert back.json()["errors"][0]["field"] == "capabilities.gone", "a version that cannot run is not brought back"


async def test_another_tenants_agent_is_not_found(api: Api, other_tenant: Tenant) -> None:
    await api.http.post("/v1/agents", json={"id": "scout", "name": "Scout"})
    async with api.client(other_tenant.key) as stranger:
        for method, path, body in (
            ("GET", "/v1/agents/scout", None),
            ("GET", "/v1/agents/scout/versions", None),
            ("GET", "/v1/agents/scout/versions/1", None),
            ("PUT", "/v1/agents/scout", {"name": "Mine"}),
            ("PATCH", "/v1/agents/scout", {"name": "Mine"}),
            ("POST", "/v1/agents/scout/rollback", {"version": 1}),
            ("DELETE", "/v1/agents/scout", None),
        ):
            assert (await stranger.request(method, path, json=body)).status_code == 404, (method, path)
    assert (await api.http.get("/v1/agents/scout")).json()["version"] == 1


async def test_a_tenant_has_a_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MAX_AGENTS", 3)
    assert (await api.http.post("/v1/agents", json={"id": "a", "name": "A"})).status_code == 201
    refused = await api.http.post("/v1/agents", json={"id": "b", "name": "B"})
    assert refused.status_code == 409
    assert refused.json()["code"] == "limit_exceeded"
