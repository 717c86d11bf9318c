"""Feedback on runs: one of each name by each author, found, counted by version, and announced."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from dirty_equals import IsPartialDict

from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves

_WEBHOOK = """
INSERT INTO webhooks (id, tenant_id, url, secret, key_id, kinds)
VALUES ('whk_' || :tenant_id, :tenant_id, 'https://example.com', 'secret', 'k', '{feedback_given}') RETURNING id
"""
_OF_PERSON = """
WITH given AS (UPDATE api_keys SET person_id = 'per_ann' WHERE tenant_id = :tenant_id AND name = 'thumbs' RETURNING id)
SELECT count(*) FROM given
"""
_SENT = "SELECT jsonb_agg(payload ORDER BY id) FROM deliveries WHERE tenant_id = :tenant_id AND kind = 'feedback_given'"
_AUDITED = "SELECT array_agg(action ORDER BY id) FROM audit_events WHERE tenant_id = :tenant_id AND target_kind = :kind"
_CHANGED = "SELECT array_agg(change ORDER BY id) FROM changes WHERE tenant_id = :tenant_id AND subject = 'feedback'"


async def _played(api: Api, worker: ManualWorker) -> str:
    """Return the id of a run that a worker has finished."""
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    await worker.play(thread_id)
    return run_id


async def _give(http: httpx2.AsyncClient, run_id: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"/v1/runs/{run_id}/feedback", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def _ids(http: httpx2.AsyncClient, path: str, **params: Any) -> list[str]:
    answer = await http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


async def _key(api: Api, *scopes: str) -> str:
    answer = await api.http.post("/v1/keys", json={"name": "thumbs", "scopes": list(scopes)})
    assert answer.status_code == 201, answer.text
    return answer.json()["key"]


@proves("feedback.once")
async def test_an_author_replaces_its_own_feedback_and_nothing_else(api: Api, worker: ManualWorker) -> None:
    run_id = await _played(api, worker)
    first = await _give(api.http, run_id, score=-1, comment=" Too long. ")
    assert first == IsPartialDict(
        run_id=run_id, agent_id="nova", agent_version=1, step=None, name="rating", score=-1, comment="Too long."
    )
    assert first == IsPartialDict(source="person", author="", key_id=api.tenant.key_id)
    again = await _give(api.http, run_id, score=-1, comment="Too long.")
    assert again == first
    changed = await _give(api.http, run_id, score=0.5)
    assert changed == first | {"score": 0.5, "comment": None, "updated_at": changed["updated_at"]}
    assert changed["updated_at"] > first["updated_at"]
    others = [
        await _give(api.http, run_id, score=1, author="ada"),
        await _give(api.http, run_id, score=1, name="tone"),
        await _give(api.http, run_id, score=1, step=0),
    ]
    expected = [one["id"] for one in reversed([first, *others])]
    assert await _ids(api.http, f"/v1/runs/{run_id}/feedback") == expected


@proves("feedback.once")
async def test_a_person_replaces_in_a_session_what_it_gave_in_an_earlier_one(api: Api, worker: ManualWorker) -> None:
    """Each session of single sign-on has a key of its own."""
    run_id = await _played(api, worker)
    sessions = [await _key(api, "runs"), await _key(api, "runs")]
    await api.fetchval(_OF_PERSON, tenant_id=api.tenant.id)
    for key, score in zip(sessions, (1, -1), strict=True):
        async with api.client(key) as person:
            await _give(person, run_id, score=score)
    (given,) = (await api.http.get(f"/v1/runs/{run_id}/feedback")).json()["items"]
    assert (given["score"], given["key_id"]) == (-1, "per_ann")


async def test_a_change_is_announced_delivered_and_audited_once(api: Api, worker: ManualWorker) -> None:
    await api.fetchval(_WEBHOOK, tenant_id=api.tenant.id)
    run_id = await _played(api, worker)
    given = await _give(api.http, run_id, score=1)
    await _give(api.http, run_id, score=1)
    await _give(api.http, run_id, score=-1, label="wrong")
    assert (await api.http.delete(f"/v1/feedback/{given['id']}")).status_code == 204
    assert (await api.http.delete(f"/v1/feedback/{given['id']}")).status_code == 404
    sent = await api.fetchval(_SENT, tenant_id=api.tenant.id)
    assert sent == [
        IsPartialDict(feedback_id=given["id"], name="rating", score=1, label=None, agent_version=1, source="person"),
        IsPartialDict(feedback_id=given["id"], score=-1, label="wrong"),
    ]
    assert await api.fetchval(_CHANGED, tenant_id=api.tenant.id) == ["created", "updated", "deleted"]
    audited = await api.fetchval(_AUDITED, tenant_id=api.tenant.id, kind="feedback")
    assert audited == ["feedback.updated", "feedback.deleted"]


@proves("feedback.end-users")
async def test_a_key_for_feedback_gives_it_as_an_end_user_and_reads_nothing(api: Api, worker: ManualWorker) -> None:
    run_id = await _played(api, worker)
    theirs = await _give(api.http, run_id, score=1)
    async with api.client(await _key(api, "feedback")) as page:
        given = await _give(page, run_id, score=-1, author="customer-42")
        assert given == IsPartialDict(source="user", author="customer-42")
        assert (await _give(page, run_id, 403, score=1, source="person"))["code"] == "forbidden"
        for path in (f"/v1/runs/{run_id}/feedback", "/v1/feedback", "/v1/agents/nova/feedback", f"/v1/runs/{run_id}"):
            assert (await page.get(path)).status_code == 403, path
        assert (await page.delete(f"/v1/feedback/{theirs['id']}")).status_code == 404
        assert (await page.delete(f"/v1/feedback/{given['id']}")).status_code == 204
    async with api.client(await _key(api, "workspace")) as other:
        assert (await _give(other, run_id, 403, score=1))["context"] == IsPartialDict(needed="feedback")
    assert await _ids(api.http, "/v1/feedback") == [theirs["id"]]


async def test_feedback_is_found_and_counted_by_version(api: Api, worker: ManualWorker) -> None:
    one = await _played(api, worker)
    await _give(api.http, one, score=1)
    await _give(api.http, one, label="short", name="length")
    patched = await api.http.patch("/v1/agents/nova", json={"name": "Nova 2"})
    assert patched.status_code == 200, patched.text
    two, three = await _played(api, worker), await _played(api, worker)
    bad = await _give(api.http, two, score=-1)
    odd = await _give(api.http, three, score=-0.5, source="code")
    for params, expected in (
        ({"agent_version": 2}, [odd["id"], bad["id"]]),
        ({"agent_id": "nova", "rated": "down", "source": "person"}, [bad["id"]]),
        ({"agent_id": "agent-builder"}, []),
        ({"since": odd["created_at"]}, [odd["id"]]),
        ({"rated": "down", "until": odd["created_at"]}, [bad["id"]]),
    ):
        assert await _ids(api.http, "/v1/feedback", **params) == expected, params
    page = (await api.http.get("/v1/feedback", params={"limit": 1, "agent_version": 2})).json()
    assert await _ids(api.http, "/v1/feedback", limit=1, agent_version=2, cursor=page["next_cursor"]) == [bad["id"]]
    assert await _ids(api.http, "/v1/runs", rated="down") == [three, two]
    assert await _ids(api.http, "/v1/runs", rated="up") == [one]
    report = (await api.http.get("/v1/agents/nova/feedback")).json()
    assert (report["agent_id"], report["counted_within"]) == ("nova", None)
    assert report["figures"] == [
        {"agent_version": 2, "name": "rating", "count": 2, "up": 0, "down": 2, "mean_score": -0.75},
        {"agent_version": 1, "name": "length", "count": 1, "up": 0, "down": 0, "mean_score": None},
        {"agent_version": 1, "name": "rating", "count": 1, "up": 1, "down": 0, "mean_score": 1},
    ]


async def test_a_run_takes_feedback_once_it_has_begun_of_its_steps_and_a_bounded_number(
    api: Api, worker: ManualWorker
) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    assert (await _give(api.http, run_id, 409, score=1))["code"] == "conflict"
    await worker.play(thread_id)
    problem = await _give(api.http, run_id, 422, score=1, step=1)
    assert problem["errors"][0]["field"] == "step"
    for number in range(100):
        await _give(api.http, run_id, score=1, author=str(number))
    assert (await _give(api.http, run_id, 409, score=1))["code"] == "limit_exceeded"
    # What is there already may still change.
    assert (await _give(api.http, run_id, score=-1, author="7"))["score"] == -1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"score": 1.01},
        {"score": True},
        {"score": 1, "name": "Not A Name"},
        {"label": ""},
        {"comment": " "},
        {"comment": "x" * 4_001},
        {"score": 1, "source": "agent"},
        {"score": 1, "step": -1},
        {"score": 1, "author": "a\nb"},
    ],
)
async def test_malformed_feedback_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert (await api.http.post("/v1/runs/run_1/feedback", json=body)).status_code == 422


async def test_feedback_goes_with_its_run_and_not_on_a_deleted_thread(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    await worker.play(thread_id)
    await _give(api.http, run_id, score=1)
    assert (await api.http.delete(f"/v1/threads/{thread_id}")).status_code == 204
    assert (await _give(api.http, run_id, 404, score=-1))["code"] == "not_found"
    await api.fetchval("DELETE FROM runs WHERE id = :run_id RETURNING id", run_id=run_id)
    assert await api.count("feedback") == 0
