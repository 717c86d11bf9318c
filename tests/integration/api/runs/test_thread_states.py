"""The state document of a thread over HTTP."""

import asyncio
from typing import Any

import pytest

from nova_workers.contracts.thread_state import MAX_STATE_BYTES, MAX_STATE_DEPTH
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves


async def _state(api: Api, thread_id: str) -> Any:
    return (await api.http.get(f"/v1/threads/{thread_id}/state")).json()


@proves("threads.state")
async def test_a_document_is_replaced_and_patched_at_a_version_only(api: Api) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/state"
    assert await _state(api, thread_id) == {"state": {}, "version": 0, "updated_at": None}

    made = await api.http.put(path, json={"state": {"a": 1, "b": {"c": [1]}}, "version": 0})
    assert (made.status_code, made.json()["version"]) == (200, 1)
    patched = (await api.http.patch(path, json={"patch": {"a": None, "b": {"d": 2}}})).json()
    assert (patched["state"], patched["version"]) == ({"b": {"c": [1], "d": 2}}, 2)
    assert await _state(api, thread_id) == patched

    for method, body in (
        ("PUT", {"state": {}, "version": 0}),
        ("PUT", {"state": {}, "version": 1}),
        ("PUT", {"state": {}, "version": 3}),
        ("PATCH", {"patch": {"x": 1}, "version": 1}),
    ):
        refused = await api.http.request(method, path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert refused.json()["context"] == {"version": 2}
    assert await _state(api, thread_id) == patched
    assert (await api.http.patch(path, json={"patch": {"x": 1}, "version": 2})).json()["version"] == 3
    assert (await api.http.put(path, json={"state": {}, "version": 3})).json()["state"] == {}


@proves("threads.state")
async def test_patches_at_once_are_all_applied_and_one_of_several_replacements(api: Api) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/state"
    patches = [api.http.patch(path, json={"patch": {f"f{n}": n}}) for n in range(8)]
    versions = [answer.json()["version"] for answer in await asyncio.gather(*patches)]
    assert sorted(versions) == list(range(1, 9))
    assert (await _state(api, thread_id))["state"] == {f"f{n}": n for n in range(8)}
    wholes = [api.http.put(path, json={"state": {"won": n}, "version": 8}) for n in range(4)]
    statuses = [answer.status_code for answer in await asyncio.gather(*wholes)]
    assert sorted(statuses) == [200, 409, 409, 409]


@pytest.mark.parametrize(
    ("method", "body", "field"),
    [
        ("PUT", {"state": [], "version": 0}, "state"),
        ("PUT", {"state": {}}, "version"),
        ("PUT", {"state": {}, "version": -1}, "version"),
        ("PUT", {"state": {"a": "x" * MAX_STATE_BYTES}, "version": 0}, "state"),
        ("PATCH", {"patch": {"a": [[] for _ in range(MAX_STATE_BYTES)]}}, "parts"),
        ("PATCH", {}, "patch"),
    ],
)
async def test_a_document_that_cannot_be_is_refused(api: Api, method: str, body: dict[str, Any], field: str) -> None:
    thread_id = await api.thread()
    answer = await api.http.request(method, f"/v1/threads/{thread_id}/state", json=body)
    assert answer.status_code in (400, 422)
    assert field in answer.text
    assert (await _state(api, thread_id))["version"] == 0


async def test_a_document_does_not_grow_beyond_its_bounds_by_patches(api: Api) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/state"
    half = "x" * (MAX_STATE_BYTES // 2)
    assert (await api.http.patch(path, json={"patch": {"a": half}})).status_code == 200
    refused = await api.http.patch(path, json={"patch": {"b": half}})
    assert (refused.status_code, refused.json()["code"]) == (409, "limit_exceeded")
    deep: Any = {}
    for _ in range(MAX_STATE_DEPTH):
        deep = {"a": deep}
    assert (await api.http.patch(path, json={"patch": deep})).status_code == 422
    assert (await _state(api, thread_id))["version"] == 1


@proves("threads.state-follows")
async def test_a_fork_has_a_copy_and_a_deleted_thread_none(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/state"
    for version in range(2):
        await api.http.put(path, json={"state": {"at": version}, "version": version})
    await api.run(thread_id)
    await worker.play(thread_id)
    fork = (await api.http.post(f"/v1/threads/{thread_id}/fork", json={})).json()["id"]
    copy = await _state(api, fork)
    assert (copy["state"], copy["version"]) == ({"at": 1}, 2)
    await api.http.patch(f"/v1/threads/{fork}/state", json={"patch": {"of": "fork"}})
    assert (await _state(api, thread_id))["state"] == {"at": 1}
    await api.http.delete(f"/v1/threads/{thread_id}")
    for method, body in (("GET", None), ("PUT", {"state": {}, "version": 2}), ("PATCH", {"patch": {}})):
        assert (await api.http.request(method, path, json=body)).status_code == 410
