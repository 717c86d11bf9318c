"""Ephemeral threads: read by their ids, and in no list or search."""

from typing import Any

import pytest

from nova_workers.contracts.runs import PlannedEffect
from nova_workers.domain.search.sql.embeddings import save_texts
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves

_EFFECTS = (PlannedEffect("embeddings", "searchable"), PlannedEffect("title", "untitled"))


async def _played(api: Api, worker: ManualWorker, thread_id: str) -> None:
    """Play two turns of a thread, after which others get a title."""
    for _ in range(2):
        run_id = await api.run(thread_id, "where is the lighthouse")
        await (await worker.claim(thread_id)).finish("by the sea", effects=_EFFECTS)
        async with worker.database.connection() as connection:
            await save_texts(connection, [(api.tenant.id, run_id)], max_chars=100)


@proves("threads.ephemeral")
async def test_an_ephemeral_thread_is_in_no_list_or_search_and_gets_no_title(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    ephemeral, kept = await api.thread(ephemeral=True, label="passing"), await api.thread()
    for thread_id in (ephemeral, kept):
        await _played(api, worker, thread_id)
    effects = await database.fetchval("SELECT array_agg(DISTINCT thread_id) FROM effects")
    assert effects == [kept]
    # A fork is as ephemeral as what it continues from.
    fork = (await api.http.post(f"/v1/threads/{ephemeral}/fork", json={})).json()
    assert fork["ephemeral"] is True

    of_kept = (await api.http.get("/v1/threads")).json()["items"]
    assert [(thread["id"], thread["ephemeral"]) for thread in of_kept] == [(kept, False)]
    for narrowed in ({"agent_id": "nova"}, {"label": "passing"}, {"forked_from": ephemeral}):
        listed = (await api.http.get("/v1/threads", params=narrowed)).json()["items"]
        assert ephemeral not in str(listed)
        assert fork["id"] not in str(listed)
    hits = (await api.http.get("/v1/search", params={"q": "lighthouse"})).json()["items"]
    assert {hit["thread_id"] for hit in hits} == {kept}

    found = (await api.http.get(f"/v1/threads/{ephemeral}")).json()
    assert (found["ephemeral"], found["title"], found["turn_count"]) == (True, None, 2)
    assert len((await api.http.get(f"/v1/threads/{ephemeral}/messages")).json()["items"]) == 4


@proves("threads.ephemeral")
async def test_a_message_makes_its_thread_ephemeral(api: Api) -> None:
    run = (await api.http.post("/v1/runs", json={"message": "hello", "ephemeral": True})).json()
    assert (await api.http.get(f"/v1/threads/{run['thread_id']}")).json()["ephemeral"] is True
    batch = {"items": [{"message": "hello", "ephemeral": True}, {"message": "hello"}]}
    items = (await api.http.post("/v1/runs/batch", json=batch)).json()["items"]
    made = [(await api.http.get(f"/v1/threads/{item['run']['thread_id']}")).json()["ephemeral"] for item in items]
    assert made == [True, False]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/runs", {"message": "hello", "thread_id": "thr_1", "ephemeral": True}, "ephemeral"),
        ("/v1/threads", {"ephemeral": True, "effects": ["embeddings"]}, "effects"),
    ],
)
async def test_what_an_ephemeral_thread_cannot_be_is_refused(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await api.http.post(path, json=body)
    assert answer.status_code == 422
    assert field in answer.text
