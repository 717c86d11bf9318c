"""Agents that get another id, with all that they have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dirty_equals import IsPartialDict
from sqlalchemy import Table

from models import migrate
from models.tables import metadata
from nova_workers.base.config import Settings
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.domain.agents.sql.moves import OF_THREADS, SWEPT
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.requirements import proves
from tests.support.data.every_table import OWNED, fill_tables

OLD, NEW = "supportdesk", "helpdesk"

OWN = {
    ("agents", "renamed_to"),
    ("agent_versions", "agent_id"),
    ("agent_versions", "renamed_from"),
    ("switches", "target"),
    ("upkeep_cursors", "target"),
}
"""Columns that `begin_rename` changes."""
NOT_AGENTS = {(table, "created_by") for table in ("orchestration_configs", "threads", "evaluations", "samplings")}
"""Columns with the name of such a column and other values."""
_AUTHORS = {"created_by", "updated_by", "actor", "renamed_to", "renamed_from"}
_TARGETS = {("switches", "target"), ("upkeep_cursors", "target")}

GIVEN: dict[str, Any] = {
    **{f"{table}.agent_id": OLD for table in ("threads", *OF_THREADS)},
    **{f"{table}.{column}": OLD for table, column in SWEPT},
    "upkeep_cursors.work": "threads",
    "upkeep_cursors.target": OLD,
    "switches.scope": "agent",
    "switches.target": OLD,
    "runs.status": "queued",
    "run_lists.query": {"agent_id": OLD},
    "run_waits.kind": "agent",
    "run_waits.request": {"kind": "agent", "agent_id": OLD, "message": "Who?"},
    "rollouts.status": "stopped",
    "deliveries.kind": "notification",
    "deliveries.target": "user",
    "deliveries.payload": {"title": "x", "message": "x"},
    "triggers.kind": "cron",
    "triggers.schedule": "0 8 * * *",
}


async def _create(api: Api, agent_id: str = OLD, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/agents", json={"id": agent_id, "name": "Support", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def _rename(api: Api, agent_id: str = OLD, to: str = NEW, **headers: str) -> Any:
    answer: Any = None
    # On a busy machine the threads may take longer than the request waits; repeating it returns the state.
    while answer is None or (answer.status_code == 200 and answer.json()["state"] == "moving"):
        answer = await api.http.post(f"/v1/agents/{agent_id}/rename", json={"to": to}, headers=headers)
    return answer


def _names_an_agent(table: Table, column: str) -> bool:
    return column.endswith("agent_id") or column in _AUTHORS or (table.name, column) in _TARGETS


@proves("agents.rename")
def test_no_column_is_forgotten_when_an_agent_is_renamed() -> None:
    """A new column that holds an agent's id moves with its thread, or is swept."""
    columns = [(table, column.name) for table in OWNED for column in table.columns]
    found = {(table.name, name) for table, name in columns if _names_an_agent(table, name)}
    moved = {("threads", "agent_id"), *((table, "agent_id") for table in OF_THREADS), *SWEPT}
    assert found == moved | OWN | NOT_AGENTS


async def _named(database: Database, tenant_id: str) -> list[tuple[str, Any]]:
    """Return the rows of a tenant that contain the former id."""
    return [
        (table.name, row)
        for table in metadata.sorted_tables
        if "tenant_id" in table.c
        for row in await database.fetch(
            f"SELECT x.* FROM {table.name} x WHERE tenant_id = :tenant_id AND x::text LIKE '%{OLD}%' ORDER BY x::text",
            tenant_id=tenant_id,
        )
    ]


async def _fill(api: Api, database_url: str, *tenants: Tenant) -> None:
    engine = migrate.engine_for(database_url)
    async with engine.begin() as connection:
        for tenant in tenants:
            known: dict[str, dict[str, Any]] = {
                "agents": {"tenant_id": tenant.id, "id": OLD},
                "agent_versions": {},
                "api_keys": {},
            }
            await fill_tables(connection, tenant.id, known=known, given=GIVEN)
    await engine.dispose()


@proves("agents.rename")
async def test_an_agent_with_a_row_in_every_table_is_renamed_and_its_former_id_is_nowhere_left(
    api: Api, other_tenant: Tenant, database: Database, database_url: str
) -> None:
    asks = {"agents": {"config": {"may_ask": ["nova", OLD]}}}
    made = await _create(api)
    await _create(api, "boss", capabilities=asks)
    async with api.client(other_tenant.key) as other:
        assert (await other.post("/v1/agents", json={"id": OLD, "name": "Other"})).status_code == 201
    await _fill(api, database_url, api.tenant, other_tenant)
    others = await _named(database, other_tenant.id)
    answer = await _rename(api)
    assert (answer.status_code, answer.json()) == (
        200,
        {"id": NEW, "former_id": OLD, "state": "done", "threads_left": 0, "settings": []},
    )
    found = await _named(database, api.tenant.id)
    left = sorted(((table, dict(row)) for table, row in found), key=lambda one: (one[0], one[1].get("id", "")))
    assert left == [
        # What an agent was does not change.
        ("agent_versions", IsPartialDict(agent_id="boss", version=1)),
        ("agent_versions", IsPartialDict(agent_id=NEW, version=2, renamed_from=OLD)),
        ("agents", IsPartialDict(id=NEW, renamed_to=None, directory=OLD)),
        ("agents", IsPartialDict(id=OLD, renamed_to=NEW, spec={"name": "Support"})),
        ("audit_events", IsPartialDict(action="agent.created", target_id=OLD)),
        ("audit_events", IsPartialDict(action="agent.renamed", target_id=OLD)),
        ("switches", IsPartialDict(scope="rename", target=OLD)),
    ]
    assert await _named(database, other_tenant.id) == others
    renamed = (await api.http.get(f"/v1/agents/{NEW}")).json()
    assert renamed == made | {"id": NEW, "version": 2, "renamed_from": OLD, "updated_at": renamed["updated_at"]}
    versions = (await api.http.get(f"/v1/agents/{NEW}/versions")).json()["items"]
    assert [(view["version"], view["renamed_from"]) for view in versions] == [(2, OLD), (1, None)]
    boss = (await api.http.get("/v1/agents/boss")).json()
    assert (boss["version"], boss["spec"]["capabilities"]["agents"]["config"]["may_ask"]) == (2, ["nova", NEW])
    for path in (
        "agents", "runs", "threads", "tasks", "triggers", "notes", "memories", "files", "deliveries", "webhooks",
        "waits?kind=agent", "secrets", "usage",
    ):  # fmt: skip
        answer = await api.http.get(f"/v1/{path}")
        assert answer.status_code == 200, answer.text
        assert OLD not in answer.text.replace(f'"renamed_from":"{OLD}"', ""), path
        if path not in ("agents", "usage", "secrets"):
            assert NEW in answer.text, path


@proves("agents.rename")
async def test_a_former_id_names_the_new_one_everywhere(api: Api) -> None:
    await _create(api)
    assert (await _rename(api)).status_code == 200
    requests = [
        ("GET", f"agents/{OLD}", None),
        ("PATCH", f"agents/{OLD}", {"name": "x"}),
        ("DELETE", f"agents/{OLD}", None),
        ("GET", f"agents/{OLD}/versions", None),
        ("POST", f"agents/{OLD}/rollback", {"version": 1}),
        ("POST", f"agents/{OLD}/rename", {"to": "third"}),
        ("POST", "runs", {"agent_id": OLD, "message": "hello"}),
        ("POST", "threads", {"agent_id": OLD}),
        ("POST", "orchestrations", {"agent_id": OLD, "task": "x"}),
        ("POST", "notes", {"agent_id": OLD, "title": "x", "content": "x"}),
        ("POST", "tasks", {"owner_agent_id": OLD, "title": "x"}),
        ("POST", "triggers", {"agent_id": OLD, "kind": "every", "schedule": "3600", "prompt": "x"}),
        ("POST", "fleet/pause", {"scope": "agent", "agent_id": OLD}),
        ("POST", "fleet/resume", {"scope": "agent", "agent_id": OLD}),
        ("POST", "runs/cancel", {"agent_id": OLD}),
        *(
            ("GET", f"{path}agent_id={OLD}", None)
            for path in (
                "runs?", "orchestrations?", "threads?", "tasks?owner_", "triggers?", "notes?", "files?",
                "deliveries?", "waits?", "search?q=x&",
            )
        ),
    ]  # fmt: skip
    for method, path, body in requests:
        answer = await api.http.request(method, f"/v1/{path}", json=body)
        assert answer.status_code == 410, (path, answer.text)
        assert answer.json() == IsPartialDict(
            code="agent_renamed", context=IsPartialDict(kind="agent", id=OLD, renamed_to=NEW)
        ), path
    taken = await api.http.post("/v1/agents", json={"id": OLD, "name": "x"})
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
    assert repr(NEW) in taken.json()["detail"]


async def test_former_ids_lead_to_the_newest_and_an_agent_may_take_one_of_its_own_again(api: Api) -> None:
    await _create(api)
    for old, new in ((OLD, NEW), (NEW, "third")):
        assert (await _rename(api, old, new)).json()["state"] == "done"
    for former in (OLD, NEW):
        assert (await api.http.get(f"/v1/agents/{former}")).json()["context"]["renamed_to"] == "third"
    thread = await api.thread(agent_id="third")
    assert (await _rename(api, "third", OLD)).json() == IsPartialDict(state="done", id=OLD)
    assert (await api.http.get(f"/v1/agents/{OLD}")).json() == IsPartialDict(version=4, renamed_from="third")
    assert (await api.http.get(f"/v1/agents/{NEW}")).json()["context"]["renamed_to"] == OLD
    assert (await api.http.get(f"/v1/threads/{thread}")).json()["agent_id"] == OLD
    await api.run(thread)


async def test_former_ids_are_free_once_the_agent_is_deleted(api: Api) -> None:
    await _create(api)
    await _rename(api)
    assert (await api.http.delete(f"/v1/agents/{NEW}")).status_code == 204
    assert (await api.http.get(f"/v1/agents/{OLD}")).json()["code"] == "agent_renamed"
    assert (await _create(api))["version"] == 2
    await api.run(await api.thread(agent_id=OLD))


async def test_a_rename_that_is_repeated_changes_nothing(api: Api) -> None:
    await _create(api)
    first, again = await _rename(api), await _rename(api)
    assert (again.status_code, again.json()) == (200, first.json())
    assert (await api.http.get(f"/v1/agents/{NEW}")).json()["version"] == 2


@pytest.mark.parametrize(
    ("to", "status"),
    [("nova", 409), ("gone", 409), ("was", 409), (OLD, 422), ("person", 422), ("No Slug", 422)],
)
async def test_a_new_id_is_free_and_a_slug(api: Api, to: str, status: int) -> None:
    for agent_id in (OLD, "gone", "was"):
        await _create(api, agent_id)
    await api.http.delete("/v1/agents/gone")
    await _rename(api, "was", "is")
    assert (await _rename(api, to=to)).status_code == status
    assert (await api.http.get(f"/v1/agents/{OLD}")).json()["version"] == 1
    assert (await _rename(api, "none")).status_code == 404


async def test_a_rename_follows_the_version_that_it_names(api: Api) -> None:
    await _create(api)
    assert (await _rename(api, **{"If-Match": '"2"'})).status_code == 412
    assert (await _rename(api, **{"If-Match": '"1"'})).status_code == 200


async def test_an_agent_with_running_runs_is_not_renamed(api: Api, worker: ManualWorker) -> None:
    await _create(api, engine="scripted")
    thread = await api.thread(agent_id=OLD)
    run = await api.run(thread)
    turn = await worker.claim(thread)
    refused = await _rename(api)
    assert (refused.status_code, refused.json()["context"]["run_ids"]) == (409, [run])
    await turn.finish()
    assert (await _rename(api)).json()["state"] == "done"
    view = (await api.http.get(f"/v1/runs/{run}")).json()
    assert (view["agent_id"], view["status"]) == (NEW, "succeeded")
    usage = (await api.http.get("/v1/usage", params={"group_by": "agent"})).json()
    assert NEW in str(usage)
    assert OLD not in str(usage)


async def test_an_export_waits_for_a_rename_and_leaves_out_former_ids(api: Api, database: Database) -> None:
    await _create(api)
    await api.thread(agent_id=OLD)
    await _rename(api)
    hold = "INSERT INTO switches (scope, tenant_id, target) VALUES ('rename', :tenant_id, :target)"
    await database.execute(hold, tenant_id=api.tenant.id, target=NEW)
    assert (await api.http.get("/v1/export")).json() == IsPartialDict(status=409, context={"agent_id": NEW})
    await database.execute("DELETE FROM switches WHERE target = :target", target=NEW)
    archive = await api.http.get("/v1/export")
    rows = [row for row in archive.text.splitlines() if OLD in row]
    assert [json.loads(row)["row"]["renamed_from"] for row in rows] == [OLD]
    async with api.client((await make_tenant(database)).key) as fresh:
        imported = await fresh.post(
            "/v1/import", content=archive.content.replace(b"thr_", b"thr_X"), headers={"content-type": MEDIA_TYPE}
        )
        assert imported.status_code == 200, imported.text
        assert (await fresh.get(f"/v1/agents/{NEW}")).json()["version"] == 2


async def test_a_rename_names_the_settings_that_have_the_former_id(serve: Serve, settings: Settings) -> None:
    delivery = settings.delivery.model_copy(update={"channels": {"*": ("webhooks",), OLD: ()}})
    api = await serve(settings.model_copy(update={"delivery": delivery}))
    await _create(api)
    assert (await _rename(api)).json()["settings"] == ["NOVA_DELIVERY__CHANNELS"]


@proves("ceilings.scope")
async def test_a_key_without_trust_renames_no_agent_with_more_trust(api: Api, database: Database) -> None:
    await _create(api, trust="unrestricted")
    lesser = await make_tenant(database, scopes=["agents", "runs"], tenant_id=api.tenant.id)
    refused = await _rename(api, Authorization=f"Bearer {lesser.key}")
    assert refused.status_code == 403, refused.text
    assert "scope" in refused.json()["detail"]
    assert "trust" in refused.json()["detail"], refused.text
    await _create(api, "usual")
    assert (await _rename(api, "usual", "other", Authorization=f"Bearer {lesser.key}")).status_code == 200
    assert (await _rename(api)).status_code == 200
