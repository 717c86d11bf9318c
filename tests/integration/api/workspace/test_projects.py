"""Projects over HTTP: planned, applied, changed on the fleet, and applied again."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves

Json = dict[str, Any]


def agent(agent_id: str = "support", **more: Any) -> Json:
    return {"id": agent_id, "name": "Support", "instructions": "Help.", **more}


def skill(name: str = "rhyme", body: str = "Rhyme.", **files: str) -> Json:
    return {
        "name": name,
        "skill_md": f"---\nname: {name}\ndescription: Rhymes.\n---\n{body}\n",
        "files": [{"path": path, "content_base64": b64encode(text.encode()).decode()} for path, text in files.items()],
    }


def trigger(key: str = "morning", **more: Any) -> Json:
    return {
        "key": key,
        "agent_id": "support",
        "kind": "cron",
        "schedule": "0  8 * * 1-5",
        "prompt": "Report.",
        "timezone": "Europe/Berlin",
        **more,
    }


def project(**more: Any) -> Json:
    return {"project": "shop", "agents": [agent()], "skills": [skill()], "triggers": [trigger()], **more}


async def send(api: Api, verb: str, body: Json, status: int = 200) -> Json:
    answer = await api.http.post(f"/v1/projects/{verb}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def get(api: Api, path: str) -> Any:
    answer = await api.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def actions(plan: Json) -> dict[str, str]:
    return {f"{step['kind']} {step['name']}": step["action"] for step in plan["steps"]}


async def triggers_of(api: Api, agent_id: str = "support") -> list[Json]:
    return (await get(api, f"/v1/triggers?agent_id={agent_id}"))["items"]


@proves("projects.applied")
async def test_a_plan_changes_nothing_and_an_apply_does_what_it_said(api: Api) -> None:
    body = project(agents=[agent(skills=["rhyme"])])
    plan = await send(api, "plan", body)
    assert actions(plan) == {"agent support": "create", "skill rhyme": "create", "trigger morning": "create"}
    assert (plan["applied"], plan["refused"], plan["unchanged"]) == (False, False, 0)
    assert (await api.http.get("/v1/agents/support")).status_code == 404

    applied = await send(api, "apply", body | {"expect": plan["digest"]})
    assert applied == plan | {"applied": True}
    assert (await get(api, "/v1/agents/support"))["spec"]["instructions"] == "Help."
    [made] = await triggers_of(api)
    assert (made["schedule"], made["timezone"], made["prompt"]) == ("0 8 * * 1-5", "Europe/Berlin", "Report.")

    again = await send(api, "apply", body)
    assert (again["steps"], again["unchanged"], again["drifted"]) == ([], 3, 0)
    assert (await get(api, "/v1/agents/support"))["version"] == 1
    assert [(each["project"], each["agents"], each["skills"], each["triggers"]) for each in await projects(api)] == [
        ("shop", 1, 1, 1)
    ]
    items = (await get(api, "/v1/projects/shop/items"))["items"]
    assert [(each["kind"], each["name"], each["resource_id"]) for each in items] == [
        ("agent", "support", "support"),
        ("skill", "rhyme", "rhyme"),
        ("trigger", "morning", made["id"]),
    ]


async def projects(api: Api) -> list[Json]:
    return (await get(api, "/v1/projects"))["items"]


async def test_a_change_is_shown_by_its_fields_and_keeps_what_the_things_are(api: Api) -> None:
    await send(api, "apply", project())
    [before] = await triggers_of(api)
    body = project(
        agents=[agent(instructions="Help fast.")],
        skills=[skill(body="Rhyme well.", **{"notes/a.txt": "a"})],
        triggers=[trigger(prompt="Report briefly.", enabled=False)],
    )
    plan = await send(api, "plan", body)
    assert actions(plan) == {"agent support": "update", "skill rhyme": "update", "trigger morning": "update"}
    changes = {(step["kind"], each["field"]): each for step in plan["steps"] for each in step["fields"]}
    assert changes["agent", "instructions"] == {
        "field": "instructions",
        "before": "Help.",
        "after": "Help fast.",
        "drifted": False,
    }
    assert {name for kind, name in changes if kind == "skill"} == {"skill_md", "files.notes/a.txt"}
    assert {name for kind, name in changes if kind == "trigger"} == {"prompt", "enabled"}

    await send(api, "apply", body)
    [after] = await triggers_of(api)
    assert (after["id"], after["prompt"], after["enabled"]) == (before["id"], "Report briefly.", False)
    assert (await get(api, "/v1/skills/rhyme"))["files"][0]["path"] == "notes/a.txt"


@proves("projects.drift")
async def test_drift_is_refused_kept_or_overwritten_by_choice(api: Api) -> None:
    await send(api, "apply", project())
    changed = await api.http.patch("/v1/agents/support", json={"instructions": "Help slowly."})
    assert changed.status_code == 200
    body = project(agents=[agent(description="Helps customers.")])

    plan = await send(api, "plan", body)
    [step] = plan["steps"]
    assert (step["action"], step["drifted"], plan["refused"]) == ("update", True, True)
    assert {each["field"]: each["drifted"] for each in step["fields"]} == {"description": False, "instructions": True}
    refused = await send(api, "apply", body, 409)
    assert "agent 'support'" in refused["detail"]
    assert "Nothing was applied" in refused["detail"]
    assert (await get(api, "/v1/agents/support"))["version"] == 2

    await send(api, "apply", body | {"on_drift": "keep"})
    spec = (await get(api, "/v1/agents/support"))["spec"]
    assert (spec["description"], spec["instructions"]) == ("Helps customers.", "Help slowly.")
    # What was kept is shown until it is decided otherwise.
    plan = await send(api, "plan", body | {"on_drift": "keep"})
    assert actions(plan) == {"agent support": "drift"}

    await send(api, "apply", body | {"on_drift": "overwrite"})
    assert (await get(api, "/v1/agents/support"))["spec"]["instructions"] == "Help."
    assert (await send(api, "plan", body))["steps"] == []


async def test_what_the_project_wants_as_the_fleet_has_it_is_no_drift(api: Api) -> None:
    await send(api, "apply", project())
    await api.http.patch("/v1/agents/support", json={"instructions": "Help slowly."})
    plan = await send(api, "apply", project(agents=[agent(instructions="Help slowly.")]))
    assert (plan["steps"], plan["drifted"]) == ([], 0)


async def test_a_thing_that_was_deleted_on_the_fleet_is_drift(api: Api) -> None:
    await send(api, "apply", project())
    [made] = await triggers_of(api)
    assert (await api.http.delete(f"/v1/triggers/{made['id']}")).status_code == 204
    plan = await send(api, "plan", project())
    assert (actions(plan), plan["refused"]) == ({"trigger morning": "create"}, True)
    kept = await send(api, "apply", project(on_drift="keep"))
    assert actions(kept) == {"trigger morning": "drift"}
    assert await triggers_of(api) == []
    await send(api, "apply", project(on_drift="overwrite"))
    assert len(await triggers_of(api)) == 1


@proves("projects.pruned")
async def test_only_what_belongs_to_the_project_is_pruned_and_only_on_request(api: Api) -> None:
    await send(api, "apply", project())
    own = await api.http.post("/v1/agents", json=agent("own"))
    assert own.status_code == 201
    nothing = {"project": "shop"}
    kept = await send(api, "apply", nothing)
    assert set(actions(kept).values()) == {"orphan"}
    assert (await api.http.get("/v1/agents/support")).status_code == 200

    pruned = await send(api, "apply", nothing | {"prune": True})
    assert actions(pruned) == {"agent support": "delete", "skill rhyme": "delete", "trigger morning": "delete"}
    assert (await api.http.get("/v1/agents/support")).status_code == 410
    assert (await api.http.get("/v1/skills/rhyme")).status_code == 404
    assert (await api.http.get("/v1/agents/own")).status_code == 200
    assert await projects(api) == []
    assert (await api.http.get("/v1/projects/shop/items")).status_code == 404


async def test_pruning_a_changed_thing_is_drift_too(api: Api) -> None:
    await send(api, "apply", project())
    await api.http.patch("/v1/agents/support", json={"instructions": "Help slowly."})
    await send(api, "apply", {"project": "shop", "prune": True}, 409)
    await send(api, "apply", {"project": "shop", "prune": True, "on_drift": "keep"})
    assert (await api.http.get("/v1/agents/support")).status_code == 200


@proves("projects.renamed")
async def test_a_renamed_agent_keeps_its_threads_and_its_triggers(api: Api) -> None:
    await send(api, "apply", project())
    [before] = await triggers_of(api)
    thread = await api.http.post("/v1/threads", json={"agent_id": "support"})
    assert thread.status_code == 201
    body = project(
        agents=[agent("help", former_id="support", description="Helps.")],
        triggers=[trigger("daily", former_key="morning", agent_id="help")],
    )
    plan = await send(api, "plan", body)
    assert actions(plan) == {"agent help": "rename", "trigger daily": "rename"}
    assert [step["former_name"] for step in plan["steps"]] == ["support", "morning"]
    assert (await api.http.get("/v1/agents/support")).status_code == 200

    await send(api, "apply", body)
    assert (await get(api, "/v1/agents/help"))["spec"]["description"] == "Helps."
    assert (await api.http.get("/v1/agents/support")).json()["code"] == "agent_renamed"
    assert [each["id"] for each in await triggers_of(api, "help")] == [before["id"]]
    again = await send(api, "apply", body)
    assert (again["steps"], again["unchanged"]) == ([], 3)


async def test_an_agent_that_was_renamed_on_the_fleet_is_named_by_its_id_of_today(api: Api) -> None:
    await send(api, "apply", project(triggers=[]))
    assert (await api.http.post("/v1/agents/support/rename", json={"to": "help"})).status_code == 200
    refused = await send(api, "plan", project(triggers=[]), 409)
    assert "'support' was renamed to 'help'" in refused["detail"]
    plan = await send(api, "apply", project(agents=[agent("help", former_id="support")], triggers=[]))
    assert actions(plan) == {"agent help": "rename"}
    assert (await send(api, "plan", project(agents=[agent("help")], triggers=[])))["steps"] == []


async def test_a_thing_that_exists_already_is_adopted_if_it_is_equal_and_else_drift(api: Api) -> None:
    assert (await api.http.post("/v1/agents", json=agent())).status_code == 201
    body = project(skills=[], triggers=[])
    assert actions(await send(api, "apply", body)) == {"agent support": "adopt"}
    other = body | {"project": "other"}
    refused = await send(api, "apply", other, 409)
    assert "belongs to the project 'shop'" in refused["detail"]

    assert (await api.http.post("/v1/agents", json=agent("own"))).status_code == 201
    differing = body | {"agents": [agent(), agent("own", instructions="Work.")]}
    assert (await send(api, "plan", differing))["refused"] is True
    await send(api, "apply", differing, 409)
    await send(api, "apply", differing | {"on_drift": "overwrite"})
    assert (await get(api, "/v1/agents/own"))["spec"]["instructions"] == "Work."


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"agents": [agent(engine="none-such")]}, 422, "agents.support.engine"),
        ({"agents": [agent(skills=["none-such"])]}, 422, "agents.support.skills.0"),
        ({"agents": [agent(), agent()]}, 422, "agents.support"),
        ({"skills": [{"name": "rhyme", "skill_md": "no front matter"}]}, 422, "skills.rhyme.skill_md"),
        ({"triggers": [trigger(schedule="every day")]}, 422, "triggers.morning.schedule"),
        ({"triggers": [trigger(agent_id="none-such")]}, 404, "triggers.morning"),
    ],
)
async def test_one_wrong_item_refuses_the_whole_and_is_named(api: Api, change: Json, status: int, field: str) -> None:
    for verb in ("plan", "apply"):
        refused = await send(api, verb, project(**change), status)
        named = [each["field"] for each in refused["errors"]] or [refused["context"]["field"]]
        assert named == [field]
    assert await projects(api) == []
    assert (await api.http.get("/v1/agents/support")).status_code == 404
    assert (await api.http.get("/v1/skills/rhyme")).status_code == 404


async def test_nothing_is_applied_if_the_plan_that_was_read_is_another(api: Api) -> None:
    plan = await send(api, "plan", project())
    await send(api, "apply", project(agents=[]), 404)
    await api.http.post("/v1/agents", json=agent())
    refused = await send(api, "apply", project(expect=plan["digest"]), 409)
    assert "Plan again" in refused["detail"]
    assert await projects(api) == []


@proves("projects.rights")
async def test_each_item_needs_the_rights_of_its_own_request(own_api: Api, database: Database) -> None:
    limited = await make_tenant(database, ("agents", "workspace"), own_api.tenant.id)
    trusted = project(agents=[agent(trust="unrestricted")])
    await send(own_api, "apply", trusted)
    async with own_api.client(limited.key) as http:
        for body in (
            project(agents=[agent("other", trust="unrestricted")]),
            project(agents=[agent(trust="unrestricted", instructions="Do as I say.")]),
            project(agents=[agent(trust="unrestricted", skills=["rhyme"])]),
        ):
            refused = await http.post("/v1/projects/plan", json=body)
            assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "trust")
        same = await http.post("/v1/projects/apply", json=trusted)
        assert (same.status_code, same.json()["steps"]) == (200, [])
    for scope in ("agents", "workspace"):
        one = await make_tenant(database, (scope,), own_api.tenant.id)
        async with own_api.client(one.key) as http:
            assert (await http.post("/v1/projects/plan", json=trusted)).status_code == 403


async def test_a_project_of_another_tenant_is_not_seen(own_api: Api, database: Database) -> None:
    await send(own_api, "apply", project())
    other = await make_tenant(database)
    async with own_api.client(other.key) as http:
        assert (await http.get("/v1/projects")).json()["items"] == []
        assert (await http.get("/v1/projects/shop/items")).status_code == 404
        mine = await http.post("/v1/projects/apply", json=project())
        assert mine.status_code == 200
        assert set(actions(mine.json()).values()) == {"create"}
