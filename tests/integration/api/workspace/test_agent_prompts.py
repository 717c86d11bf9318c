"""The system prompt of an agent over HTTP, without a run."""

from __future__ import annotations

from typing import Any

from nova_workers.base.config import Settings
from nova_workers.contracts.abort import AbortSignal
from nova_workers.domain.runs.rules.turns.prompting import Prompter
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, make_tenant

SPEC: dict[str, Any] = {
    "name": "Clerk",
    "identity": "You are the clerk.",
    "instructions": "Keep the minutes.",
    "responsibilities": [{"title": "Minutes", "content": "Write them."}],
    "capabilities": {"memory": {"tools": ["memory_list"]}, "notes": {"tools": ["note_create"]}},
    "skills": ["rhyme"],
    "trust": "controlled",
}


async def clerk(api: Api) -> None:
    text = "---\nname: rhyme\ndescription: Greets people in rhyme.\n---\nRhyme."
    assert (await api.http.put("/v1/skills/rhyme", json={"skill_md": text})).status_code == 200
    assert (await api.http.post("/v1/memories", json={"content": "The office is in Oslo."})).status_code == 201
    assert (await api.http.post("/v1/agents", json={"id": "clerk", **SPEC})).status_code == 201


async def prompt(api: Api, **body: object) -> dict[str, Any]:
    answer = await api.http.post("/v1/agents/clerk/prompt", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_prompt_is_the_one_that_a_run_gets(
    api: Api, worker: ManualWorker, database: Database, settings: Settings
) -> None:
    await clerk(api)
    thread = await api.thread(agent_id="clerk")
    await api.run(thread)
    claim = (await worker.claim(thread)).claim
    cwd = str(settings.agent_directory(claim.tenant_id, "clerk"))
    of_run = await Prompter(database, settings).prompt(
        HeldRun(claim, "token", AbortSignal(), renewed_s=0.0), cwd=cwd, servers={}
    )
    shown = await prompt(api)
    assert (shown["text"], shown["stable_chars"]) == (of_run.text, of_run.stable_chars)
    assert "The office is in Oslo." in shown["text"]
    assert "Greets people in rhyme." in shown["text"]
    assert shown["tokens"] == -(-len(shown["text"]) // 4)
    assert [tool["name"] for tool in shown["tools"]] == ["memory_list", "note_create", "skill_load", "skill_read_file"]
    assert shown["tools_tokens"] == sum(tool["tokens"] for tool in shown["tools"]) > 0
    assert shown["complete"] is True


async def test_the_prompt_of_a_renamed_agent_names_the_directory_that_it_keeps(api: Api, settings: Settings) -> None:
    await clerk(api)
    renamed = await api.http.post("/v1/agents/clerk/rename", json={"to": "scribe"})
    assert renamed.status_code < 300, renamed.text
    shown = (await api.http.post("/v1/agents/scribe/prompt", json={})).json()
    assert str(settings.agent_directory(api.tenant.id, "clerk")) in shown["text"]
    assert str(settings.agent_directory(api.tenant.id, "scribe")) not in shown["text"]


async def test_a_configuration_that_is_not_saved_has_a_prompt_and_stays_unsaved(api: Api) -> None:
    await clerk(api)
    shown = await prompt(api, spec={"name": "Draft", "identity": "You are a draft."})
    assert "You are a draft." in shown["text"]
    assert "You are agent clerk (Draft)." in shown["text"]
    assert shown["tools"] == []
    assert (await api.http.get("/v1/agents/clerk")).json()["version"] == 1
    new = await api.http.post("/v1/agents/not-made-yet/prompt", json={"spec": {"name": "New"}})
    assert new.status_code == 200
    assert (await api.http.post("/v1/agents/not-made-yet/prompt", json={})).status_code == 404
    refused = await api.http.post("/v1/agents/clerk/prompt", json={"spec": {"name": "X", "trust": "much"}})
    assert refused.json()["errors"][0]["field"].endswith("spec.trust")


async def test_without_the_scope_of_the_workspace_its_content_is_left_out(api: Api, database: Database) -> None:
    await clerk(api)
    limited = await make_tenant(database, ("agents",), api.tenant.id)
    async with api.client(limited.key) as client:
        shown = (await client.post("/v1/agents/clerk/prompt", json={})).json()
    assert "Keep the minutes." in shown["text"]
    assert "Oslo" not in shown["text"]
    assert "Greets people" not in shown["text"]
    assert shown["complete"] is False


async def test_a_preview_refuses_what_a_save_refuses_and_warns_of_what_is_unlikely_to_work(api: Api) -> None:
    await clerk(api)
    refused = await api.http.post("/v1/agents/clerk/prompt", json={"spec": {**SPEC, "engine": "steam"}})
    assert [error["field"] for error in refused.json()["errors"]] == ["engine"]
    shown = await prompt(api, spec={**SPEC, "engine": "anthropic", "model": "claude-nothing"})
    assert [warning["field"] for warning in shown["warnings"]] == ["model"]
    assert (await prompt(api))["warnings"] == []
