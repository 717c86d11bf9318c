"""Datasets: versions of examples, where examples come from, and when they are deleted."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from dirty_equals import IsPartialDict

from nova_workers.contracts.engine import ToolCall
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves

_SENT = ({"type": "text", "text": "sent"},)


async def _post(http: httpx2.AsyncClient, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"/v1/datasets{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def _create(api: Api, **body: Any) -> None:
    await _post(api.http, "", 201, name="complaints", **body)


async def _add(api: Api, *examples: dict[str, Any], status: int = 200, **body: Any) -> dict[str, Any]:
    return await _post(api.http, "/complaints/examples", status, examples=examples, **body)


async def _examples(api: Api, **params: Any) -> list[dict[str, Any]]:
    answer = await api.http.get("/v1/datasets/complaints/examples", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def _keys(api: Api, **params: Any) -> list[str]:
    return [example["key"] for example in await _examples(api, **params)]


@proves("datasets.versions")
async def test_each_change_is_a_version_that_stays_as_it_is(api: Api) -> None:
    await _create(api)
    one, two = {"key": "one", "input": "1?", "expected": "1"}, {"key": "two", "input": "2?", "tags": ["b", "a"]}
    assert await _add(api, one, two) == IsPartialDict(version=1, added=2, replaced=0, unchanged=0)
    assert await _add(api, two, one) == IsPartialDict(version=1, added=0, unchanged=2)
    assert await _add(api, one | {"expected": "one"}, two) == IsPartialDict(version=2, replaced=1, unchanged=1)
    assert (await api.http.delete("/v1/datasets/complaints/examples/two")).status_code == 204
    assert (await api.http.delete("/v1/datasets/complaints/examples/two")).status_code == 404
    assert (await api.http.get("/v1/datasets/complaints")).json() == IsPartialDict(version=3, examples=1)
    assert {each["key"]: each["expected"] for each in await _examples(api, version=1)} == {"one": "1", "two": None}
    assert {each["key"]: each["expected"] for each in await _examples(api, version=2)} == {"one": "one", "two": None}
    assert await _keys(api) == ["one"]
    assert await _keys(api, version=2, tag=["a", "b"]) == ["two"]
    missing = await api.http.get("/v1/datasets/complaints/examples", params={"version": 4})
    assert missing.status_code == 404


async def test_a_created_dataset_is_found_again_by_its_request_and_has_its_name_alone(api: Api) -> None:
    headers = {"Idempotency-Key": "one"}
    made = await api.http.post("/v1/datasets", json={"name": "b"}, headers=headers)
    again = await api.http.post("/v1/datasets", json={"name": "b"}, headers=headers)
    assert (again.status_code, again.json()) == (201, made.json())
    assert (await _post(api.http, "", 409, name="b"))["code"] == "conflict"
    await _post(api.http, "", 201, name="a")
    listed = (await api.http.get("/v1/datasets", params={"limit": 1})).json()
    assert [one["name"] for one in listed["items"]] == ["a"]
    rest = (await api.http.get("/v1/datasets", params={"cursor": listed["next_cursor"]})).json()
    assert [one["name"] for one in rest["items"]] == ["b"]


async def test_examples_are_divided_by_their_keys_and_stay_in_their_splits(api: Api) -> None:
    await _create(api)
    examples = [{"key": f"k{number}", "input": "?"} for number in range(200)]
    shares = {"shares": {"train": 0.75, "test": 0.25}}
    await _add(api, *examples[:100], {"key": "mine", "input": "?", "split": "dev"}, split=shares)
    first = set(await _keys(api, split="test"))
    await _add(api, *examples[100:], split=shares)
    test = await _keys(api, split="test", limit=200)
    assert 25 <= len(test) <= 75
    assert first <= set(test)
    assert await _keys(api, split="dev") == ["mine"]


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"input": ""}, "input"),
        ({"input": [{"type": "tool_use", "id": "c", "name": "Read", "input": {}}]}, "examples.1"),
        ({"input": "x", "context": [{"role": "assistant", "content": "x"}]}, "begin with the user"),
        ({"input": "x", "split": "not a word"}, "split"),
        ({"input": "x", "key": "a/b"}, "key"),
        ({"input": "x" * 300_000}, "examples.1"),
        ({"input": "x", "key": "good"}, "key"),
    ],
)
async def test_a_wrong_example_is_refused_with_all_others(api: Api, example: dict[str, Any], words: str) -> None:
    await _create(api)
    problem = await _add(api, {"key": "good", "input": "?"}, example, status=422)
    assert words in str(problem)
    assert await _examples(api) == []


async def _talked(api: Api, worker: ManualWorker) -> tuple[str, list[str]]:
    """Play two turns of a thread, of which the second calls a tool. Return the thread and its runs."""
    thread_id = await api.thread()
    runs = [await api.run(thread_id, "I am ada@example.com.")]
    await worker.play(thread_id, "Welcome.")
    runs.append(await api.run(thread_id, "Where is order 123-456-7890?"))
    turn = await worker.claim(thread_id)
    params = {"order": "1234567890"}
    call = ToolCall("c1", "lookup", params, step=0, sequence=0, status="completed", result=_SENT)
    await turn.commit("I look.", call)
    await turn.finish("It is on its way.")
    return thread_id, runs


async def test_an_example_of_a_run_has_what_came_before_it_and_its_calls(api: Api, worker: ManualWorker) -> None:
    await _create(api, redact={"emails": True, "numbers": True, "words": ["order"]})
    _, runs = await _talked(api, worker)
    taken: dict[str, Any] = {"runs": {"tool": "lookup"}, "expected": "answer", "split": "test"}
    assert await _post(api.http, "/complaints/from-runs", **taken) == IsPartialDict(version=1, added=1)
    (example,) = await _examples(api)
    assert example == IsPartialDict(key=runs[1], source_run_id=runs[1], expected="It is on its way.", split="test")
    assert example["input"] == [{"type": "text", "text": "Where is [redacted] [number]?"}]
    assert [(each["role"], each["content"][0]["text"]) for each in example["context"]] == [
        ("user", "I am [email]."),
        ("assistant", "Welcome."),
    ]
    assert example["calls"] == [
        IsPartialDict(tool="lookup", arguments={"order": "[number]"}, result=list(_SENT), is_error=False)
    ]
    again = await _post(api.http, "/complaints/from-runs", **taken)
    assert again == IsPartialDict(version=1, added=0, unchanged=1)
    both = await _post(api.http, "/complaints/from-runs", runs={"run_ids": runs}, context=False)
    assert both == IsPartialDict(added=1, replaced=1, skipped={})


@proves("datasets.deletion")
async def test_an_example_is_deleted_with_its_thread_in_every_version(api: Api, worker: ManualWorker) -> None:
    await _create(api)
    thread_id, runs = await _talked(api, worker)
    await _post(api.http, "/complaints/from-runs", runs={"thread_id": thread_id})
    await _add(api, {"key": runs[0], "input": "replaced"}, {"key": "mine", "input": "?"})
    assert (await api.http.delete(f"/v1/threads/{thread_id}")).status_code == 204
    assert set(await _keys(api)) == {runs[0], "mine"}
    assert await _keys(api, version=1) == []
    skipped = await _post(api.http, "/complaints/from-runs", runs={"run_ids": runs[1:]})
    assert (skipped["added"], list(skipped["skipped"])) == (0, runs[1:])


async def test_rules_of_redaction_apply_from_then_on(api: Api) -> None:
    await _create(api)
    await _add(api, {"key": "before", "input": "ada@example.com"})
    changed = await api.http.patch("/v1/datasets/complaints", json={"redact": {"emails": True}, "description": "x"})
    assert changed.json() == IsPartialDict(description="x", version=1, redact=IsPartialDict(emails=True))
    await _add(api, {"key": "after", "input": "ada@example.com"})
    assert [each["input"][0]["text"] for each in await _examples(api)] == ["ada@example.com", "[email]"]


async def test_a_deleted_dataset_has_no_examples_left(api: Api) -> None:
    await _create(api)
    await _add(api, {"input": "?"})
    assert (await api.http.delete("/v1/datasets/complaints")).status_code == 204
    assert (await api.http.get("/v1/datasets/complaints")).status_code == 404
    assert await api.count("dataset_examples") == 0
