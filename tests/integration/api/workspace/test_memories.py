"""Memories over HTTP."""

from typing import Any

import pytest

from nova_workers.domain.memories.sql import MAX_MEMORIES, save_memory
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant


async def _add(api: Api, content: str) -> dict[str, Any]:
    answer = await api.http.post("/v1/memories", json={"content": content})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_fact_is_saved_listed_and_forgotten(api: Api) -> None:
    made = await _add(api, "  Likes tea ")
    assert (made["content"], made["saved_by"]) == ("Likes tea", "person")
    listed = (await api.http.get("/v1/memories")).json()
    assert listed == {"items": [made], "next_cursor": None}
    assert (await api.http.delete(f"/v1/memories/{made['id']}")).status_code == 204
    assert (await api.http.get("/v1/memories")).json()["items"] == []
    again = await api.http.delete(f"/v1/memories/{made['id']}")
    assert (again.status_code, again.json()["detail"]) == (404, f"There is no memory {made['id']!r}.")


async def test_equal_memories_are_one_with_the_first_author(api: Api, database: Database) -> None:
    async with database.connection() as connection:
        saved = await save_memory(connection, api.tenant.id, "nova", "Likes tea")
    made = await _add(api, "Likes tea")
    assert (made["id"], made["saved_by"]) == (saved.id, "nova")


async def test_memories_come_newest_first_page_by_page(api: Api) -> None:
    ids = [(await _add(api, f"Fact {number}"))["id"] for number in range(5)]
    first = (await api.http.get("/v1/memories", params={"limit": 2})).json()
    assert [item["id"] for item in first["items"]] == [ids[4], ids[3]]
    rest = (await api.http.get("/v1/memories", params={"limit": 9, "cursor": first["next_cursor"]})).json()
    assert [item["id"] for item in rest["items"]] == [ids[2], ids[1], ids[0]]
    wrong = await api.http.get("/v1/memories", params={"contains": "x", "cursor": first["next_cursor"]})
    assert wrong.status_code == 400


async def test_words_are_taken_literally(api: Api) -> None:
    await _add(api, "Pays 100% on time")
    await _add(api, "Likes tea")
    found = (await api.http.get("/v1/memories", params={"contains": "100% ON"})).json()["items"]
    assert [item["content"] for item in found] == ["Pays 100% on time"]


async def test_another_tenants_memories_are_not_listed(api: Api, other_tenant: Tenant) -> None:
    made = await _add(api, "Likes tea")
    async with api.client(other_tenant.key) as stranger:
        assert (await stranger.get("/v1/memories")).json()["items"] == []
        assert (await stranger.delete(f"/v1/memories/{made['id']}")).status_code == 404
    assert len((await api.http.get("/v1/memories")).json()["items"]) == 1


async def test_a_tenant_has_a_limit(api: Api, database: Database) -> None:
    await database.execute(
        "INSERT INTO memories (id, tenant_id, agent_id, content) "
        "SELECT 'mem_' || lpad(n::text, 26, '0'), :tenant_id, 'a', 'Fact ' || n FROM generate_series(1, :many::int) n",
        many=MAX_MEMORIES,
        tenant_id=api.tenant.id,
    )
    answer = await api.http.post("/v1/memories", json={"content": "One more"})
    assert (answer.status_code, answer.json()["code"]) == (409, "limit_exceeded")
    assert "retry-after" not in answer.headers, "to wait does not help"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": " \n"},
        {"content": "x" * 2_001},
        {"content": 7},
        {"content": "a\x00b"},
        {"content": "x", "agent_id": "nova"},
    ],
)
async def test_bad_input_is_refused_and_nothing_is_saved(api: Api, body: dict[str, Any]) -> None:
    answer = await api.http.post("/v1/memories", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"]
    assert (await api.http.get("/v1/memories")).json()["items"] == []


@pytest.mark.parametrize("memory_id", ["mem_1", "a%00b", "x" * 90, "'"])
async def test_a_value_that_is_no_id_is_not_found(api: Api, memory_id: str) -> None:
    assert (await api.http.delete(f"/v1/memories/{memory_id}")).status_code == 404


async def test_memories_need_the_scope_of_the_workspace(api: Api, database: Database) -> None:
    weak = await make_tenant(database, scopes=("runs",))
    async with api.client(weak.key) as client:
        assert (await client.get("/v1/memories")).status_code == 403
        assert (await client.post("/v1/memories", json={"content": "x"})).status_code == 403
