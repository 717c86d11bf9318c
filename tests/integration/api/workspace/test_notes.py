"""``/v1/notes``: people see and change every note of their tenant, and of no other."""

from typing import Any

import pytest

from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.notes import MAX_NOTE_CHARS
from nova_workers.domain.notes.rules import MAX_NOTES_PER_AGENT, NoteChange, change_note, create_note
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves


async def _note(api: Api, **fields: Any) -> dict[str, Any]:
    body = {"agent_id": "nova", "title": "Plan", "content": "# One\n", **fields}
    answer = await api.http.post("/v1/notes", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_note_is_made_read_changed_and_deleted(api: Api) -> None:
    made = await _note(api)
    assert (made["agent_id"], made["content"], made["content_chars"]) == ("nova", "# One\n", 6)
    assert (made["shared"], made["pinned"]) == (True, False)
    path = f"/v1/notes/{made['id']}"
    changed = (await api.http.patch(path, json={"title": " Better ", "pinned": True, "content": None})).json()
    assert (changed["title"], changed["pinned"], changed["content"]) == ("Better", True, "# One\n")
    assert changed["updated_at"] > made["updated_at"]
    assert (await api.http.patch(path, json={})).json() == changed
    assert (await api.http.get(path)).json() == changed
    assert (await api.http.delete(path)).status_code == 204
    for answer in (await api.http.get(path), await api.http.patch(path, json={}), await api.http.delete(path)):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_person_sees_and_changes_unshared_notes(api: Api, database: Database) -> None:
    draft = await create_note(database, api.tenant.id, "nova", title="Draft", content="x")
    assert (await api.http.get(f"/v1/notes/{draft.id}")).json()["shared"] is False
    assert (await api.http.patch(f"/v1/notes/{draft.id}", json={"shared": True})).json()["shared"] is True
    # A person who shares a note needs no delivery: the outbox stays empty.
    assert await database.fetchval("SELECT count(*) FROM deliveries") == 0


@proves("deliveries.note")
async def test_a_note_that_a_person_unshares_or_deletes_leaves_the_outbox(api: Api, database: Database) -> None:
    sender = Sender(api.tenant.id, "nova", "thr_1", "run_1")
    kept, unshared, deleted = [
        await create_note(database, api.tenant.id, "nova", title=title, content="") for title in ("a", "b", "c")
    ]
    for note in (kept, unshared, deleted):
        await change_note(Work(database), api.tenant.id, note.id, NoteChange(shared=True), sender=sender)
    await api.http.patch(f"/v1/notes/{unshared.id}", json={"shared": False})
    await api.http.delete(f"/v1/notes/{deleted.id}")
    page = (await api.http.get("/v1/deliveries", params={"kind": "note"})).json()
    assert [item["payload"] for item in page["items"]] == [{"note_id": kept.id, "title": "a"}]


async def test_notes_are_listed_by_filter_and_page_without_their_content(api: Api, database: Database) -> None:
    ids = [(await _note(api, pinned=number == 0, shared=number != 1))["id"] for number in range(4)]
    other = (await _note(api, agent_id="agent-builder"))["id"]

    async def listed(**params: Any) -> list[str]:
        answer = await api.http.get("/v1/notes", params=params)
        assert answer.status_code == 200, answer.text
        assert all("content" not in item for item in answer.json()["items"])
        return [item["id"] for item in answer.json()["items"]]

    assert await listed() == [other, *reversed(ids)]
    assert await listed(agent_id="nova") == [*reversed(ids)]
    assert await listed(pinned=True) == [ids[0]]
    assert await listed(shared=False) == [ids[1]]
    assert await listed(agent_id="nova", shared=True, pinned=False) == [ids[3], ids[2]]
    first = (await api.http.get("/v1/notes", params={"agent_id": "nova", "limit": 3})).json()
    assert [item["id"] for item in first["items"]] == [ids[3], ids[2], ids[1]]
    assert await listed(agent_id="nova", limit=3, cursor=first["next_cursor"]) == [ids[0]]
    wrong = await api.http.get("/v1/notes", params={"pinned": True, "cursor": first["next_cursor"]})
    assert wrong.json()["code"] == "invalid_cursor"


@proves("notes.seen")
async def test_another_tenants_notes_are_not_found(api: Api, other_tenant: Tenant) -> None:
    note_id = (await _note(api))["id"]
    async with api.client(other_tenant.key) as stranger:
        for answer in (
            await stranger.get(f"/v1/notes/{note_id}"),
            await stranger.patch(f"/v1/notes/{note_id}", json={"title": "mine"}),
            await stranger.delete(f"/v1/notes/{note_id}"),
        ):
            assert answer.status_code == 404
            assert answer.json()["detail"] == f"There is no note {note_id!r}. Was it deleted?"
        assert (await stranger.get("/v1/notes")).json()["items"] == []
    assert (await api.http.get(f"/v1/notes/{note_id}")).json()["title"] == "Plan"


async def test_a_key_without_the_scope_is_refused(api: Api, database: Database) -> None:
    limited = await make_tenant(database, ("runs", "agents"), api.tenant.id)
    async with api.client(limited.key) as client:
        for path in ("/v1/notes", "/v1/files", "/v1/deliveries", "/v1/files/file_1/content"):
            assert (await client.get(path)).json()["code"] == "forbidden"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"title": "x"}, "agent_id"),
        ({"agent_id": "Not A Slug", "title": "x"}, "agent_id"),
        ({"agent_id": "nova"}, "title"),
        ({"agent_id": "nova", "title": "  "}, "title"),
        ({"agent_id": "nova", "title": "x" * 201}, "title"),
        ({"agent_id": "nova", "title": "a\nb"}, "title"),
        ({"agent_id": "nova", "title": "a\x00b"}, "title"),
        ({"agent_id": "nova", "title": "x", "content": "a\x00b"}, "content"),
        ({"agent_id": "nova", "title": "x", "content": "x" * (MAX_NOTE_CHARS + 1)}, "content"),
        ({"agent_id": "nova", "title": "x", "content": None}, "content"),
        ({"agent_id": "nova", "title": "x", "shared": "perhaps"}, "shared"),
        ({"agent_id": "nova", "title": "x", "pined": True}, "pined"),
    ],
)
async def test_a_malformed_note_is_refused_by_field(api: Api, body: dict[str, Any], field: str) -> None:
    answer = await api.http.post("/v1/notes", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert await api.count("notes") == 0
    note_id = (await _note(api))["id"]
    if field not in ("agent_id", "pined") and body.get(field) is not None:
        refused = await api.http.patch(f"/v1/notes/{note_id}", json={field: body[field]})
        assert refused.status_code == 422
        assert (await api.http.get(f"/v1/notes/{note_id}")).json()["title"] == "Plan"


async def test_a_note_needs_an_existing_agent_below_its_limit(api: Api, database: Database) -> None:
    body = {"agent_id": "nobody", "title": "x"}
    unknown = await api.http.post("/v1/notes", json=body)
    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (404, "agent_id")
    await database.execute(
        "INSERT INTO notes (id, tenant_id, agent_id, title) "
        "SELECT 'note_' || n, :tenant_id, 'nova', 'x' FROM generate_series(1, :many::int) n",
        many=MAX_NOTES_PER_AGENT,
        tenant_id=api.tenant.id,
    )
    full = await api.http.post("/v1/notes", json={**body, "agent_id": "nova"})
    assert (full.status_code, full.json()["code"]) == (409, "limit_exceeded")


@pytest.mark.parametrize("note_id", ["%00", "x%20y", "a" * 90, "%ff", "note_nowhere"])
@pytest.mark.parametrize("path", ["/v1/notes/{}", "/v1/files/{}", "/v1/files/{}/content"])
async def test_an_impossible_id_is_not_found(api: Api, path: str, note_id: str) -> None:
    assert (await api.http.get(path.format(note_id))).status_code == 404
