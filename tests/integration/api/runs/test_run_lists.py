"""Lists of runs that people save: of the key, and of the key that replaces it."""

from __future__ import annotations

from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.run_lists import MAX_RUN_LISTS, RunListQuery, RunListSave
from nova_workers.contracts.http.wire import ThreadCreate
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api

_FAILED = RunListQuery(status=["failed"], period="week", sort="cost")


async def test_a_list_is_saved_replaced_and_deleted_by_its_key_alone(api: Api) -> None:
    other_key = (await api.http.post("/v1/keys", json={"name": "other", "scopes": ["runs:read"]})).json()["key"]
    async with NovaClient(api.url, api.tenant.key) as nova, NovaClient(api.url, other_key) as other:
        first = await nova.run_lists.save(RunListSave(name=" Failures ", query=_FAILED))
        assert (first.name, first.query) == ("Failures", _FAILED)
        again = await nova.run_lists.save(RunListSave(name="Failures", query=RunListQuery(text="paris")))
        theirs = await other.run_lists.save(RunListSave(name="Failures", query=RunListQuery()))
        assert (again.id, again.query.text) == (first.id, "paris")
        assert (await nova.run_lists.list()).items == [again]
        assert (await other.run_lists.list()).items == [theirs]
        assert (await api.http.delete(f"/v1/run-lists/{theirs.id}")).status_code == 404
        await nova.run_lists.delete(first.id)
        assert (await nova.run_lists.list()).items == []
        assert (await other.run_lists.list()).items == [theirs]


async def test_a_key_that_replaces_another_has_its_lists_and_its_threads(api: Api) -> None:
    made = (await api.http.post("/v1/keys", json={"name": "person", "scopes": ["runs"]})).json()
    async with NovaClient(api.url, made["key"]) as before:
        saved = await before.run_lists.save(RunListSave(name="Failures", query=_FAILED))
        thread = (await before.threads.create(ThreadCreate())).id
    rotated = (await api.http.post(f"/v1/keys/{made['id']}/rotate", json={})).json()
    async with NovaClient(api.url, rotated["key"]) as after:
        assert (await after.run_lists.list()).items == [saved]
        newer = (await after.threads.create(ThreadCreate())).id
        assert [each.id for each in (await after.threads.list(created_by="me")).items] == [newer, thread]
        await after.run_lists.delete(saved.id)


async def test_the_number_of_lists_is_bounded_and_a_wrong_query_is_refused(api: Api) -> None:
    async with NovaClient(api.url, api.tenant.key) as nova:
        for number in range(MAX_RUN_LISTS):
            await nova.run_lists.save(RunListSave(name=f"l{number}", query=_FAILED))
        assert (await nova.run_lists.save(RunListSave(name="l0", query=RunListQuery()))).query.status == []
    refused = await api.http.post("/v1/run-lists", json={"name": "one more", "query": {}})
    assert (refused.status_code, refused.json()["code"]) == (409, "limit_exceeded")
    for wrong in ({"query": {}}, {"name": "", "query": {}}, {"name": "x", "query": {"state": 1}}):
        assert (await api.http.post("/v1/run-lists", json=wrong)).status_code == 422, wrong


async def test_a_person_has_the_same_lists_and_threads_in_each_session(api: Api, database: Database) -> None:
    sessions = [(await api.http.post("/v1/keys", json={"name": "s", "scopes": ["runs"]})).json() for _ in range(2)]
    mark = "UPDATE api_keys SET person_id = 'per_1' WHERE id = ANY(:ids)"
    await database.execute(mark, ids=[session["id"] for session in sessions])
    async with NovaClient(api.url, sessions[0]["key"]) as first, NovaClient(api.url, sessions[1]["key"]) as second:
        saved = await first.run_lists.save(RunListSave(name="Failures", query=_FAILED))
        thread = await first.threads.create(ThreadCreate())
        assert thread.created_by == "per_1"
        assert (await second.run_lists.list()).items == [saved]
        assert [each.id for each in (await second.threads.list(created_by="me")).items] == [thread.id]
