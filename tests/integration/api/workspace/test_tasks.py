"""``/v1/tasks`` over HTTP."""

from typing import Any

import pytest

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves

NO_STEP = "tst_" + "0" * 26


async def _make(api: Api, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/tasks", json={"title": "Tidy up", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def _do(api: Api, method: str, path: str, status: int = 200, **body: Any) -> Any:
    answer = await api.http.request(method, f"/v1/tasks/{path}", json=None if method == "GET" else body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_a_task_goes_through_its_whole_life(api: Api) -> None:
    task = await _make(
        api,
        description="All of it",
        steps=[{"title": "one", "details": "d"}, {"title": "two"}],
        resources=[{"kind": "url", "value": "https://example.org"}],
    )
    assert (task["id"], task["status"], task["owner_agent_id"], task["created_by"]) == (1, "draft", "nova", "person")
    one, two = (step["id"] for step in task["steps"])
    assert (await _do(api, "PATCH", "1", title="Tidy", revision=1))["revision"] == 2
    active = (await api.http.post("/v1/tasks/1/activate")).json()
    thread = (await api.http.get(f"/v1/threads/{active['thread_id']}")).json()
    assert (thread["agent_id"], thread["title"]) == ("nova", "Tidy")
    child = await _do(api, "POST", f"1/steps/{one}/subtask", 201, owner_agent_id="agent-builder")
    assert (child["id"], child["title"], child["parent_task_id"], child["created_by"]) == (2, "one", 1, "person")
    assert (await _do(api, "POST", "1/complete", 409))["code"] == "illegal_transition"
    assert (await _do(api, "PATCH", f"1/steps/{one}", 409, done=True))["code"] == "illegal_transition"
    assert (await _do(api, "POST", "2/complete", outcome="Good"))["outcome"] == "Good"
    after = await _do(api, "PATCH", f"1/steps/{two}", done=True)
    assert [(step["done"], step["subtask"] and step["subtask"]["id"]) for step in after["steps"]] == [
        (True, 2),
        (True, None),
    ]
    (run,) = (await api.http.get(f"/v1/threads/{active['thread_id']}/runs")).json()["items"]
    assert (run["source"], run["queue"], run["metadata"]) == (
        "task",
        "background",
        {"task_id": 1, "subtask_id": 2, "step_id": one, "status": "done"},
    )
    replaced = await _do(api, "PUT", "1/steps", steps=[{"id": one, "title": "eins"}])
    assert [step["title"] for step in replaced["steps"]] == ["eins"]
    resource = await _do(api, "POST", "1/resources", 201, kind="file", value="a.txt")
    assert (await _do(api, "POST", "1/resources", 409, kind="file", value="a.txt"))["code"] == "conflict"
    assert (await api.http.delete(f"/v1/tasks/1/resources/{resource['id']}")).status_code == 204
    assert (await api.http.delete(f"/v1/tasks/1/resources/{resource['id']}")).status_code == 404
    assert (await _do(api, "POST", "1/complete"))["ended_at"]
    assert (await _do(api, "POST", "1/cancel", 409))["detail"].startswith("Task 1 cannot go from 'done' to 'canceled'.")
    history = await _do(api, "GET", "1/history")
    assert [change["revision"] for change in history["items"]] == list(range(10, 0, -1))
    assert history["items"][-1]["kind"] == "created"


async def test_lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        await _make(api, title=str(number), status="active" if number % 2 else "draft")

    async def walk(path: str, **params: Any) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = (await api.http.get(f"/v1/tasks{path}", params={"limit": 2, **params, **more})).json()
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    assert [task["id"] for task in await walk("")] == [5, 4, 3, 2, 1]
    assert [task["id"] for task in await walk("", status="draft")] == [5, 3, 1]
    assert await walk("", owner_agent_id="agent-builder") == []
    assert await walk("", parent_task_id=1) == []
    for title in "abc":
        await _do(api, "PATCH", "1", title=title)
    assert [change["revision"] for change in await walk("/1/history")] == [4, 3, 2, 1]
    page = (await api.http.get("/v1/tasks", params={"limit": 1})).json()
    stray = await api.http.get("/v1/tasks", params={"status": "draft", "cursor": page["next_cursor"]})
    assert (stray.status_code, stray.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "", {}, 422, "title"),
        ("POST", "", {"title": " "}, 422, "title"),
        ("POST", "", {"title": "a\x00"}, 422, "title"),
        ("POST", "", {"title": "\x1f"}, 422, "title"),
        ("POST", "", {"title": "x", "steps": [{"title": "\x1f"}]}, 422, "steps.0.title"),
        ("POST", "", {"title": 7}, 422, "title"),
        ("POST", "", {"title": "x", "wish": 1}, 422, "wish"),
        ("POST", "", {"title": "x", "owner_agent_id": "nobody"}, 404, "owner_agent_id"),
        ("POST", "", {"title": "x", "steps": [{"title": "x" * 61}]}, 422, "steps.0.title"),
        ("POST", "", {"title": "x", "steps": [{"title": "x", "id": NO_STEP}]}, 422, "steps.0.id"),
        ("POST", "", {"title": "x", "description": "x" * 20_001}, 422, "description"),
        ("POST", "", {"title": "x", "status": "canceled"}, 422, "status"),
        ("POST", "", {"title": "x", "resources": [{"kind": "url", "value": "x"}]}, 422, "resources.0"),
        ("POST", "/1/resources", {"kind": "url", "value": "x"}, 422, "body value: 'x' is not an http"),
        ("PATCH", "/1", {"status": "open"}, 422, "status"),
        ("PATCH", "/1", {"status": "draft"}, 409, "'draft' to 'draft'"),
        ("PATCH", "/1", {"revision": 2**31}, 422, "revision"),
        ("PATCH", "/1", {"owner_agent_id": "nobody"}, 404, "owner_agent_id"),
        ("PATCH", "/2", {"title": "x"}, 404, "There is no task 2."),
        ("GET", "/0", None, 404, "There is no task '0'."),
        ("GET", "/one", None, 404, "There is no task 'one'."),
        ("GET", "/-1", None, 404, "There is no task"),
        ("GET", "/2147483648", None, 404, "There is no task '2147483648'."),
        ("GET", "/99999999999999999999", None, 404, "There is no task"),
        ("GET", "/1%00", None, 404, "There is no task"),
        ("GET", "/2147483647/history", None, 404, "There is no task 2147483647."),
        ("GET", "?status=open", None, 422, "status"),
        ("GET", "?parent_task_id=2147483648", None, 422, "parent_task_id"),
        ("GET", "?owner_agent_id=%00", None, 422, "owner_agent_id"),
        ("PUT", "/1/steps", {"steps": [{"title": "x"}] * 201}, 422, "steps"),
        ("PUT", "/1/steps", {"steps": [{"title": "x", "subtask": {"id": 1}}]}, 422, "steps.0.subtask"),
        ("PATCH", f"/1/steps/{NO_STEP}", {"done": True}, 404, "has no step"),
        ("PATCH", "/1/steps/%00", {"done": True}, 404, "There is no task step"),
        ("PATCH", f"/1/steps/{NO_STEP}", {"done": "perhaps"}, 422, "done"),
        ("POST", f"/1/steps/{NO_STEP}/subtask", {}, 404, "has no step"),
        ("POST", "/1/resources", {"kind": "url", "value": "file:///etc/passwd"}, 422, "not an http or https address"),
        ("POST", "/1/resources", {"kind": "file", "value": "a\nb"}, 422, "control characters"),
        ("DELETE", "/1/resources/tre_1", None, 404, "has no resource"),
        ("POST", "/1/complete", {"outcome": ""}, 422, "outcome"),
        ("POST", "/1/complete", {}, 409, "'draft' to 'done'"),
    ],
)
async def test_bad_input_is_refused_by_name_and_changes_nothing(
    api: Api, method: str, path: str, body: dict[str, Any] | None, status: int, says: str
) -> None:
    task = await _make(api)
    answer = await api.http.request(method, f"/v1/tasks{path}", json=body)
    problem = answer.json()
    assert answer.status_code == status, problem
    assert says in problem["detail"] + " ".join(f"{error['field']} {error['message']}" for error in problem["errors"])
    assert (await api.http.get("/v1/tasks/1")).json() == task
    assert await api.count("tasks") == 1


@proves("tasks.tenants")
async def test_another_tenant_finds_nothing(api: Api, other_tenant: Tenant) -> None:
    task = await _make(api, status="active", steps=[{"title": "one"}])
    step_id = task["steps"][0]["id"]
    async with api.client(other_tenant.key) as other:
        for method, path, body in (
            ("GET", "/1", None),
            ("GET", "/1/history", None),
            ("PATCH", "/1", {"title": "x"}),
            ("POST", "/1/complete", {}),
            ("POST", "/1/cancel", {}),
            ("PUT", "/1/steps", {"steps": []}),
            ("PATCH", f"/1/steps/{step_id}", {"done": True}),
            ("POST", f"/1/steps/{step_id}/subtask", {}),
            ("POST", "/1/resources", {"kind": "file", "value": "x"}),
        ):
            answer = await other.request(method, f"/v1/tasks{path}", json=body)
            assert (answer.status_code, answer.json()["detail"]) == (404, "There is no task 1."), path
        assert (await other.get("/v1/tasks")).json()["items"] == []
    assert (await api.http.get("/v1/tasks/1")).json() == task


async def test_the_scope_is_needed(api: Api, database: Database) -> None:
    tenant = await make_tenant(database, scopes=("runs", "agents"))
    async with api.client(tenant.key) as client:
        answer = await client.get("/v1/tasks")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@proves("work.now")
async def test_run_now_answers_with_the_run_and_the_task_shows_it(api: Api, database: Database) -> None:
    await _make(api, steps=[{"title": "one"}])
    assert (await _do(api, "POST", "1/run", 409))["code"] == "illegal_transition"
    await _do(api, "POST", "1/activate")
    run = await _do(api, "POST", "1/run", 202)
    assert (run["status"], run["source"], run["agent_id"], run["metadata"]) == (
        "queued",
        "task",
        "nova",
        {"task_id": 1},
    )
    assert (await _do(api, "POST", "1/run", 202))["id"] == run["id"]
    task = await _do(api, "GET", "1")
    assert (task["working_run_id"], task["idle_invocations"], task["parked_reason"]) == (run["id"], 0, None)
    assert task["work_at"] is not None
    (listed,) = (await api.http.get("/v1/tasks")).json()["items"]
    assert (listed["work_at"], listed["parked_reason"]) == (task["work_at"], None)

    await _do(api, "POST", "99/run", 404)
    await _do(api, "POST", "1/cancel")
    assert (await _do(api, "POST", "1/run", 409))["code"] == "illegal_transition"
    assert await database.fetchval(
        "SELECT cancel_requested_at IS NOT NULL FROM runs WHERE id = :run_id", run_id=run["id"]
    )
