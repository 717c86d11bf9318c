"""``/v1/audit``: changes of keys and agents, by whom and from where."""

import asyncio
from typing import Any

import orjson
import pytest
from dirty_equals import IsPartialDict

from api.guard.key_uses import KeyUses
from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import Unavailable
from nova_workers.base.ids import new_id
from nova_workers.client.client import NovaClient
from nova_workers.domain.audit.rules import AuditSeals
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.visibility import all_tenants
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves
from tests.support.waiting import pass_time, until

_LAST_USE = "SELECT last_used_at FROM api_keys WHERE id = :id"


async def _items(api: Api, **params: str) -> list[dict[str, Any]]:
    answer = await api.http.get("/v1/audit", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


@proves("audit.read")
async def test_the_log_says_which_key_changed_what_from_where(api: Api) -> None:
    note = (await api.http.post("/v1/notes", json={"agent_id": "nova", "title": "plan"})).json()["id"]
    await api.http.patch(f"/v1/notes/{note}", json={"title": "the plan"})
    await api.http.patch("/v1/agents/nova", json={"description": "mine"})
    thread_id = await api.thread()
    await api.run(thread_id)
    await api.http.delete(f"/v1/notes/{note}")
    await api.http.get(f"/v1/notes/{note}")
    events = await _items(api)
    assert [(event["action"], event["target_id"], event["fields"]) for event in events] == [
        ("note.deleted", note, []),
        ("agent.updated", "nova", ["spec.description"]),
        ("note.updated", note, ["title"]),
        ("note.created", note, []),
    ]
    assert {(e["actor_kind"], e["actor_id"], e["actor_name"], e["address"], e["run_id"]) for e in events} == {
        ("key", api.tenant.key_id, "test", "127.0.0.1", None)
    }


@proves("audit.read")
async def test_the_log_is_filtered_and_read_in_pages(api: Api) -> None:
    for title in ("one", "two", "three"):
        await api.http.post("/v1/notes", json={"agent_id": "nova", "title": title})
    await api.http.post("/v1/memories", json={"content": "hidden words"})
    everything = await _items(api)
    assert [event["action"] for event in everything] == ["memory.created", *["note.created"] * 3]
    assert "hidden words" not in str(everything)
    first, third = everything[-1], everything[1]
    assert await _items(api, action="memory.created") == everything[:1]
    assert await _items(api, target_kind="note", target=first["target_id"]) == [first]
    assert await _items(api, actor=api.tenant.key_id, since=third["at"], until="2199-01-01T00:00:00Z") == everything[:2]
    assert await _items(api, actor="key_other") == []
    page = (await api.http.get("/v1/audit", params={"limit": 3})).json()
    rest = await _items(api, limit="3", cursor=page["next_cursor"])
    assert page["items"] + rest == everything


@proves("audit.read")
async def test_only_an_operator_reads_the_log_of_another_tenant(api: Api, database: Database) -> None:
    other = await make_tenant(database, scopes=["keys", "workspace"])
    async with api.client(other.key) as client:
        await client.post("/v1/notes", json={"agent_id": "nova", "title": "theirs"})
        assert len((await client.get("/v1/audit")).json()["items"]) == 1
        refused = await client.get("/v1/audit", params={"tenant": api.tenant.id})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "operator")
    assert await _items(api) == []
    assert [event["target_kind"] for event in await _items(api, tenant=other.id)] == ["request", "note"]
    assert await _items(api, tenant=new_id("ten")) == []


@proves("audit.export", "audit.acts")
async def test_the_log_is_exported_as_lines_in_the_order_of_its_chain(api: Api, database: Database) -> None:
    [first] = [orjson.loads(line) for line in (await api.http.get("/v1/audit/export")).content.splitlines()]
    assert (first["action"], first["target_id"], first["actor_name"]) == ("audit.exported", api.tenant.id, "test")
    for title in ("one", "two", "three"):
        await api.http.post("/v1/notes", json={"agent_id": "nova", "title": title})
    await api.http.patch("/v1/agents/nova", json={"description": "mine"})
    with all_tenants():
        assert await AuditSeals(database).tick() == 5
    exported = await api.http.get("/v1/audit/export")
    assert exported.headers["content-type"].startswith("application/x-ndjson")
    listed = await _items(api)
    lines = [orjson.loads(line) for line in exported.content.splitlines()]
    assert lines == listed[::-1]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, None]
    chain = (await api.http.get("/v1/audit/chain")).json()
    assert chain == IsPartialDict(seq=5, hash=lines[4]["hash"], anchor_seq=0, unsealed=1)
    notes = await api.http.get("/v1/audit/export", params={"target_kind": "note", "until": listed[2]["at"]})
    assert [orjson.loads(line)["id"] for line in notes.content.splitlines()] == [listed[4]["id"], listed[3]["id"]]
    other = await make_tenant(database, scopes=["keys", "workspace"])
    async with api.client(other.key) as client:
        assert len((await client.get("/v1/audit/export")).content.splitlines()) == 1
        assert (await client.get("/v1/audit/export", params={"tenant": api.tenant.id})).status_code == 403
        assert (await client.get("/v1/audit/chain", params={"tenant": api.tenant.id})).status_code == 403
    theirs = await api.http.get("/v1/audit/export", params={"tenant": other.id})
    # Who read another tenant's log is in that log.
    assert [orjson.loads(line)["actor_id"] for line in theirs.content.splitlines()][-1] == api.tenant.key_id
    with api.state.archives.hold(api.tenant.id):
        assert (await api.http.get("/v1/audit/export")).json()["code"] == "too_many_archives"


@proves("audit.refusals")
async def test_refusals_of_rights_are_recorded_before_they_are_answered_and_in_bounds(
    api: Api, database: Database
) -> None:
    other = await make_tenant(database, scopes=["runs", "keys"])

    async def refused() -> list[tuple[str, int]]:
        items = await _items(api, tenant=other.id, action="access.refused", limit="200")
        assert {(one["actor_id"], one["target_kind"]) for one in items} == {(other.key_id, "request")}
        return [(one["target_id"], one["times"]) for one in items]

    async with api.client(other.key) as client:
        assert (await client.get("/v1/agents?limit=2")).status_code == 403
        assert await refused() == [("GET /v1/agents", 1)]
        assert (await client.delete("/v1/notes/note_%0a%1b[31m")).status_code == 403
        assert (await client.get("/v1/audit", params={"tenant": api.tenant.id})).status_code == 403
        assert (await client.post("/v1/keys", json={"name": "n", "scopes": ["operator"]})).status_code == 403
        assert (await client.get("/v1/keys")).status_code == 200
        for number in range(80):
            assert (await client.get("/v1/agents")).status_code == 403
            assert (await client.get(f"/v1/agents/a{number}")).status_code == 403
    expected = [
        ("GET /v1/agents", 1),
        ("DELETE /v1/notes/note_%0a%1b[31m", 1),
        ("GET /v1/audit", 1),
        ("POST /v1/keys", 1),
        *((f"GET /v1/agents/a{number}", 1) for number in range(56)),
    ]
    assert (await refused())[::-1] == expected
    await api.state.refusals.write()
    await api.state.refusals.write()
    assert (await refused())[::-1][60:] == [("GET /v1/agents", 80), ("*", 24)]


async def test_refusals_during_an_outage_are_recorded_once_the_database_is_back(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await make_tenant(database, scopes=["runs", "keys"])
    refusals = api.state.refusals
    async with api.client(other.key) as client:
        with monkeypatch.context() as outage:
            outage.setattr(refusals, "_database", PostgresDatabase("postgresql://127.0.0.1:1/none", pool_size=1))
            for _ in range(2):
                assert (await client.get("/v1/agents")).status_code == 403
            await refusals.write()
        await refusals.write()
    items = await _items(api, tenant=other.id, action="access.refused")
    assert [(one["target_id"], one["times"]) for one in items] == [("GET /v1/agents", 2)]


async def test_a_refusal_whose_record_fails_while_counts_are_written_is_counted(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await make_tenant(database, scopes=["runs", "keys"])
    refusals = api.state.refusals

    async def fails(*_: object) -> None:
        # The minute ends meanwhile.
        await refusals.write()
        raise Unavailable("The database does not answer.")

    async with api.client(other.key) as client:
        with monkeypatch.context() as outage:
            outage.setattr(refusals, "_write", fails)
            assert (await client.get("/v1/agents")).status_code == 403
        await refusals.write()
    items = await _items(api, tenant=other.id, action="access.refused")
    assert [(one["target_id"], one["times"]) for one in items] == [("GET /v1/agents", 1)]


@proves("audit.key-use")
async def test_a_key_shows_when_and_from_where_it_was_last_used(api: Api, database: Database) -> None:
    unused = (await api.http.post("/v1/keys", json={"name": "unused", "scopes": ["runs"]})).json()
    assert (unused["last_used_at"], unused["last_used_address"]) == (None, None)
    await api.state.key_uses.write()
    keys = {key["id"]: key for key in (await api.http.get("/v1/keys")).json()["items"]}
    assert keys[unused["id"]]["last_used_at"] is None
    assert keys[api.tenant.key_id]["last_used_address"] == "127.0.0.1"
    later = await database.fetchval(
        "UPDATE api_keys SET last_used_at = now() + interval '1 hour' WHERE id = :id RETURNING last_used_at::text",
        id=api.tenant.key_id,
    )
    await api.state.key_uses.write()
    assert await database.fetchval("SELECT max(last_used_at)::text FROM api_keys") == later


@proves("audit.key-use")
async def test_uses_of_keys_are_written_when_the_api_stops(
    settings: Settings, tenant: Tenant, database: Database
) -> None:
    async with served(settings) as (url, _), NovaClient(url, tenant.key) as nova:
        await nova.keys.list()
    assert await database.fetchval(_LAST_USE, id=tenant.key_id) is not None


_WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"


@proves("audit.key-use")
async def test_uses_of_keys_that_could_not_be_written_are_written_later(
    settings: Settings, tenant: Tenant, database: Database
) -> None:
    hasty = PostgresDatabase(settings.require_database_url(), pool_size=2, command_timeout_s=60)
    uses = KeyUses(hasty, SystemClock())
    uses.note(tenant.key_id, "192.0.2.7")
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM api_keys WHERE id = :id FOR UPDATE", id=tenant.key_id)
        writing = asyncio.create_task(uses.write())
        await until(lambda: database.fetchval(_WAITS), "the write to wait for the key's row")
        await pass_time(61)
        with pytest.raises(Unavailable):
            await writing
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await uses.write()
    assert await database.fetchval(_LAST_USE, id=tenant.key_id) is None
    await uses.write()
    written = await database.fetchval(_LAST_USE, id=tenant.key_id)
    assert written is not None
    await uses.write()
    assert await database.fetchval(_LAST_USE, id=tenant.key_id) == written
    await hasty.close()
