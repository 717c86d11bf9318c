"""``/v1/evaluations``: what is started once, listed, canceled and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from dirty_equals import IsPartialDict

from tests.integration.api.conftest import Api

_START: dict[str, Any] = {"agent": "nova", "version": 1, "dataset": "orders"}


@pytest.fixture
async def with_examples(api: Api) -> Api:
    """An API with a dataset of two examples."""
    await api.http.post("/v1/datasets", json={"name": "orders"})
    examples = [{"key": key, "input": "?", "expected": "!"} for key in ("one", "two")]
    added = await api.http.post("/v1/datasets/orders/examples", json={"examples": examples})
    assert added.status_code == 200, added.text
    return api


async def test_an_evaluation_is_started_once_listed_canceled_and_deleted(with_examples: Api) -> None:
    http = with_examples.http
    headers = {"Idempotency-Key": "nightly"}
    started = await http.post("/v1/evaluations", json=_START | {"repeats": 3}, headers=headers)
    assert (started.status_code, started.json()["trials"]) == (201, 6), started.text
    again = await http.post("/v1/evaluations", json=_START | {"repeats": 3}, headers=headers)
    assert again.json() == started.json()
    path = f"/v1/evaluations/{started.json()['id']}"
    assert (await http.get(path)).json() == IsPartialDict(
        agent="nova", version=1, dataset_version=1, trials=6, result=None, evaluators=[{"kind": "exact"}]
    )
    listed = (await http.get("/v1/evaluations", params={"agent_id": "nova", "dataset": "orders"})).json()
    assert [one["id"] for one in listed["items"]] == [started.json()["id"]]
    assert (await http.get("/v1/evaluations", params={"dataset": "others"})).json()["items"] == []
    page = (await http.get(f"{path}/trials", params={"limit": 4})).json()
    rest = (await http.get(f"{path}/trials", params={"limit": 4, "cursor": page["next_cursor"]})).json()
    keys = [(trial["key"], trial["repeat"]) for trial in [*page["items"], *rest["items"]]]
    assert keys == [("one", 1), ("two", 1), ("one", 2), ("two", 2), ("one", 3), ("two", 3)]
    assert len((await http.get(f"{path}/trials", params={"key": "two"})).json()["items"]) == 3
    assert (await http.delete(path)).json()["code"] == "conflict"
    canceled = (await http.post(f"{path}/cancel")).json()
    assert (canceled["status"], canceled["result"]["candidate"]["trials"]) == ("canceled", 0)
    assert (await http.delete(path)).status_code == 204
    assert (await http.get(path)).status_code == 404


async def test_an_answer_is_deleted_with_its_example(with_examples: Api) -> None:
    http = with_examples.http
    started = (await http.post("/v1/evaluations", json=_START)).json()
    await http.delete("/v1/datasets/orders/examples/one")
    trials = f"/v1/evaluations/{started['id']}/trials"
    assert len((await http.get(trials)).json()["items"]) == 2, "an earlier version keeps its examples"
    await http.delete("/v1/datasets/orders")
    assert (await http.get(trials)).json()["items"] == []


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"against": 1}, 422),
        ({"version": 0}, 422),
        ({"version": 99}, 404),
        ({"agent": "unknown"}, 404),
        ({"dataset": "unknown"}, 404),
        ({"split": "unknown"}, 422),
        ({"repeats": 21}, 422),
        ({"evaluators": []}, 422),
        ({"evaluators": [{"kind": "pattern", "pattern": "("}]}, 422),
        ({"tools": {"missing": "live"}}, 422),
        ({"tools": {"live": ["a"], "stand_ins": {"a": "b"}}}, 422),
        ({"budget_usd": 0}, 422),
    ],
)
async def test_what_cannot_be_evaluated_is_refused(with_examples: Api, changed: dict[str, Any], status: int) -> None:
    answer = await with_examples.http.post("/v1/evaluations", json=_START | changed)
    assert answer.status_code == status, answer.text
    assert await with_examples.count("evaluations") == 0
