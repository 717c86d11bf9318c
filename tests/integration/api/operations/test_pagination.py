"""Pages: every row once, and only with cursors of the list."""

import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant


async def _everything(api: Api, path: str, limit: int) -> list[str]:
    ids: list[str] = []
    params: dict[str, str | int] = {"limit": limit}
    while True:
        page = (await api.http.get(path, params=params)).json()
        assert len(page["items"]) <= limit
        ids += [str(item.get("version", item["id"])) if "versions" in path else item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return ids
        params["cursor"] = page["next_cursor"]


@pytest.mark.parametrize("limit", [1, 2, 5, 200])
async def test_every_list_gives_every_row_once(api: Api, limit: int) -> None:
    threads = [await api.thread() for _ in range(5)]
    runs = [await api.run(threads[0]) for _ in range(5)]
    agents = ["agent-builder", *[f"bot-{n}" for n in range(3)], "nova"]
    for agent_id in agents[1:-1]:
        await api.http.post("/v1/agents", json={"id": agent_id, "name": "Bot"})
    for number in range(4):
        await api.http.put("/v1/agents/nova", json={"name": f"Nova {number}"})
    keys = [(await api.http.post("/v1/keys", json={"name": "k"})).json()["id"] for _ in range(4)]
    assert await _everything(api, "/v1/threads", limit) == threads[::-1]
    assert await _everything(api, "/v1/runs", limit) == runs[::-1]
    assert await _everything(api, f"/v1/threads/{threads[0]}/runs", limit) == runs[::-1]
    assert await _everything(api, "/v1/agents", limit) == agents
    assert await _everything(api, "/v1/agents/nova/versions", limit) == ["5", "4", "3", "2", "1"]
    assert await _everything(api, "/v1/keys", limit) == [*keys[::-1], api.tenant.key_id]


async def test_rows_added_meanwhile_do_not_shift_the_pages(api: Api) -> None:
    ids = [await api.thread() for _ in range(3)]
    first = (await api.http.get("/v1/threads", params={"limit": 2})).json()
    await api.thread()
    second = (await api.http.get("/v1/threads", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]


async def test_a_cursor_works_only_for_its_own_list(api: Api) -> None:
    threads = [await api.thread() for _ in range(2)]
    for thread_id in threads:
        for _ in range(2):
            await api.run(thread_id)
    page = await api.http.get("/v1/runs", params={"limit": 1, "status": "queued"})
    cursor = page.json()["next_cursor"]
    for path, params in (
        ("/v1/runs", {}),
        ("/v1/runs", {"status": "running"}),
        ("/v1/threads", {}),
        ("/v1/agents", {}),
        (f"/v1/threads/{threads[0]}/runs", {}),
        (f"/v1/threads/{threads[0]}/messages", {}),
    ):
        answer = await api.http.get(path, params={**params, "cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), path
    of_first = await api.http.get(f"/v1/threads/{threads[0]}/runs", params={"limit": 1})
    elsewhere = await api.http.get(f"/v1/threads/{threads[1]}/runs", params={"cursor": of_first.json()["next_cursor"]})
    assert elsewhere.status_code == 400


async def test_an_edited_cursor_is_refused(api: Api) -> None:
    for _ in range(2):
        await api.thread()
    cursor: str = (await api.http.get("/v1/threads", params={"limit": 1})).json()["next_cursor"]
    edited = [cursor[:-1], cursor + "A", cursor + "==", cursor.swapcase(), "", " ", "AAAA", "é", "\x00", "x" * 500]
    edited += [cursor[:n] + ("A" if cursor[n] != "A" else "B") + cursor[n + 1 :] for n in range(len(cursor))]
    for value in edited:
        answer = await api.http.get("/v1/threads", params={"cursor": value})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), value


async def test_another_tenant_s_cursor_is_refused(api: Api, other_tenant: Tenant) -> None:
    async with api.client(other_tenant.key) as other:
        for _ in range(2):
            await other.post("/v1/threads", json={})
        cursor = (await other.get("/v1/threads", params={"limit": 1})).json()["next_cursor"]
    assert (await api.http.get("/v1/threads", params={"cursor": cursor})).status_code == 400
