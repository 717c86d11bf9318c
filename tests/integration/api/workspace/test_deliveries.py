"""``/v1/deliveries`` and ``/v1/files``: the inbox, and files that are harmless to download."""

from typing import Any

import pytest

from nova_workers.contracts.deliveries import Sender, SentFileView
from nova_workers.domain.delivery.rules.from_agents import notify
from nova_workers.domain.delivery.sql.deliveries import add_delivery
from nova_workers.domain.files.rules import OutgoingFile, file_name, media_type_of, send_file
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves


def _sender(api: Api, agent_id: str = "nova", run_id: str = "run_1", thread_id: str = "thr_1") -> Sender:
    return Sender(api.tenant.id, agent_id, thread_id, run_id)


async def _file(api: Api, database: Database, name: str = "a.txt", content: bytes = b"x", **who: str) -> SentFileView:
    return await send_file(Work(database), _sender(api, **who), OutgoingFile(file_name(name), content, None))


async def test_the_inbox_shows_deliveries_newest_first(api: Api, database: Database) -> None:
    await notify(Work(database), _sender(api), "Done")
    file = await _file(api, database, agent_id="agent-builder")
    page = (await api.http.get("/v1/deliveries")).json()
    assert [(item["kind"], item["status"], item["target"]) for item in page["items"]] == [
        ("file", "pending", "user"),
        ("notification", "pending", "user"),
    ]
    assert page["items"][0]["payload"]["file_id"] == file.id
    assert (page["items"][1]["payload"], page["items"][1]["run_id"]) == ({"text": "Done"}, "run_1")

    async def kinds(**params: str) -> list[str]:
        return [item["kind"] for item in (await api.http.get("/v1/deliveries", params=params)).json()["items"]]

    assert await kinds(kind="notification") == ["notification"]
    assert await kinds(agent_id="agent-builder") == ["file"]
    assert await kinds(agent_id="agent-builder", kind="notification") == []
    assert await kinds(status="delivered") == []
    first = (await api.http.get("/v1/deliveries", params={"limit": 1})).json()
    assert await kinds(limit="1", cursor=first["next_cursor"]) == ["notification"]
    for wrong in ({"kind": "pigeon"}, {"status": "lost"}, {"agent_id": "Not A Slug"}):
        assert (await api.http.get("/v1/deliveries", params=wrong)).status_code == 422


async def test_a_person_closes_items_that_need_no_answer(api: Api, database: Database, other_tenant: Tenant) -> None:
    await notify(Work(database), _sender(api), "Done")
    async with database.transaction() as connection:
        question_id = await add_delivery(connection, _sender(api), "question", {"wait_id": "wait_1"}, target="user")
        copy_id = await add_delivery(connection, _sender(api), "notification", {"text": "Done"}, target="telegram")
    (item,) = (await api.http.get("/v1/deliveries", params={"kind": "notification"})).json()["items"]
    path = f"/v1/deliveries/{item['id']}/close"
    async with api.client(other_tenant.key) as stranger:
        assert (await stranger.post(path)).status_code == 404
    for _ in range(2):
        answer = await api.http.post(path)
        assert (answer.status_code, answer.json()) == (200, {**item, "status": "closed", "next_try_at": None})
    for unclosable, why in ((question_id, "answer run 'run_1'"), (copy_id, "goes to 'telegram'")):
        refused = await api.http.post(f"/v1/deliveries/{unclosable}/close")
        assert (refused.status_code, why in refused.json()["detail"]) == (409, True), refused.text
    rows = await database.fetch("SELECT id, status FROM deliveries")
    assert {row["id"]: row["status"] for row in rows} == {
        item["id"]: "closed",
        question_id: "pending",
        copy_id: "pending",
    }


@proves("files.inert")
@pytest.mark.parametrize(
    ("name", "media_type", "disposition"),
    [
        ("a.html", "text/html", "attachment; filename=\"a.html\"; filename*=UTF-8''a.html"),
        ('ü "q".svg', "image/svg+xml", "attachment; filename=\"_ _q_.svg\"; filename*=UTF-8''%C3%BC%20%22q%22.svg"),
        ("a;b=c%41.js", "text/javascript", "attachment; filename=\"a_b=c_41.js\"; filename*=UTF-8''a%3Bb%3Dc%2541.js"),
        ("x\r\nSet-Cookie: a=b", "application/octet-stream", None),
        ("../../.bashrc", "application/octet-stream", "attachment; filename=\".bashrc\"; filename*=UTF-8''.bashrc"),
        ("invoice_\u202efdp.exe", None, "attachment; filename=\"invoice__fdp.exe\"; filename*=UTF-8''invoice__fdp.exe"),
    ],
)
async def test_a_file_is_saved_and_never_shown(
    api: Api, database: Database, name: str, media_type: str | None, disposition: str | None
) -> None:
    file = await _file(api, database, name, b"<script>\x00\xff")
    answer = await api.http.get(f"/v1/files/{file.id}/content")
    assert answer.content == b"<script>\x00\xff"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert disposition is None or answer.headers["content-disposition"] == disposition
    assert answer.headers["content-type"] == (media_type or file.media_type)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "set-cookie" not in answer.headers
    assert "no-store" in answer.headers["cache-control"]


async def test_files_are_listed_got_and_deleted(api: Api, database: Database) -> None:
    one = await _file(api, database, "one.txt")
    two = await _file(api, database, "two.txt", agent_id="agent-builder", thread_id="thr_2")

    async def listed(**params: Any) -> list[str]:
        return [item["name"] for item in (await api.http.get("/v1/files", params=params)).json()["items"]]

    assert await listed() == ["two.txt", "one.txt"]
    assert await listed(agent_id="nova") == ["one.txt"]
    assert await listed(thread_id="thr_2") == ["two.txt"]
    assert await listed(thread_id="thr_2", agent_id="nova") == []
    first = (await api.http.get("/v1/files", params={"limit": 1})).json()
    assert await listed(limit=1, cursor=first["next_cursor"]) == ["one.txt"]
    assert SentFileView.model_validate((await api.http.get(f"/v1/files/{one.id}")).json()) == one
    assert (await api.http.delete(f"/v1/files/{two.id}")).status_code == 204
    assert await listed() == ["one.txt"]
    for path in (f"/v1/files/{two.id}", f"/v1/files/{two.id}/content"):
        assert (await api.http.get(path)).json()["code"] == "not_found"
    assert (await api.http.delete(f"/v1/files/{two.id}")).status_code == 404
    # No delivery is made for a deleted file.
    assert [row["payload"]["name"] for row in await database.fetch("SELECT payload FROM deliveries")] == ["one.txt"]


async def test_another_tenants_files_and_deliveries_are_not_found(
    api: Api, database: Database, other_tenant: Tenant
) -> None:
    file = await _file(api, database)
    async with api.client(other_tenant.key) as stranger:
        for path in (f"/v1/files/{file.id}", f"/v1/files/{file.id}/content"):
            assert (await stranger.get(path)).status_code == 404
        assert (await stranger.delete(f"/v1/files/{file.id}")).status_code == 404
        assert (await stranger.get("/v1/files")).json()["items"] == []
        assert (await stranger.get("/v1/deliveries")).json()["items"] == []
    assert (await api.http.get(f"/v1/files/{file.id}/content")).content == b"x"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.txt", "a.txt"),
        ("/etc/passwd", "passwd"),
        ("a\\..\\b.txt", "a_.._b.txt"),
        ("tab\there", "tab_here"),
        ("x" * 300 + ".tar", "x" * 196 + ".tar"),
        ("." + "x" * 300, "." + "x" * 199),
        ("\ud800.txt", "\ufffd.txt"),
    ],
)
def test_a_name_is_safe_to_save_under(given: str, name: str) -> None:
    assert file_name(given) == name


@pytest.mark.parametrize("given", ["", ".", "..", "/", "...", "///", "\n"])
def test_some_names_have_no_safe_form(given: str) -> None:
    with pytest.raises(ValueError, match="not the name of a file"):
        file_name(given)


def test_the_media_type_follows_the_name() -> None:
    assert [media_type_of(name) for name in ("a.PDF", "a.md", "a.tar.gz", "a", "a.unknown", "a.png")] == [
        "application/pdf",
        "text/markdown",
        "application/gzip",
        "application/octet-stream",
        "application/octet-stream",
        "image/png",
    ]
