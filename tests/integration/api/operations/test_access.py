"""Keys, scopes and tenants: what each key permits, and that no tenant sees another's rows."""

from typing import Any

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.base.errors import Unauthenticated
from nova_workers.base.ids import new_id
from nova_workers.client.client import NovaClient
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves
from tests.support.data.order_policies import POLICY
from tests.support.waiting import until

# One request for each route with an id; a test below proves that none is missing.
BY_ID: list[tuple[str, str, Any]] = [
    ("GET", "/v1/agents/{agent_id}", None),
    ("PUT", "/v1/agents/{agent_id}", {"name": "mine now"}),
    ("DELETE", "/v1/agents/{agent_id}", None),
    ("GET", "/v1/agents/{agent_id}/versions", None),
    ("POST", "/v1/agents/{agent_id}/rollback", {"version": 1}),
    ("POST", "/v1/agents/{agent_id}/rename", {"to": "mine-now"}),
    ("POST", "/v1/agents/{agent_id}/prompt", {}),
    ("POST", "/v1/agents/{agent_id}/versions", {"name": "mine now"}),
    ("POST", "/v1/agents/{agent_id}/rollout", {"version": 1}),
    ("GET", "/v1/agents/{agent_id}/rollout", None),
    ("GET", "/v1/agents/{agent_id}/rollouts", None),
    ("GET", "/v1/agents/{agent_id}/rollouts/{rollout_id}", None),
    ("POST", "/v1/agents/{agent_id}/rollout/advance", {"step": 0}),
    ("POST", "/v1/agents/{agent_id}/rollout/stop", {}),
    ("PUT", "/v1/agents/{agent_id}/sampling", {"percent": 5, "judge": {"rubric": "x", "budget_usd": 1}}),
    ("GET", "/v1/agents/{agent_id}/sampling", None),
    ("DELETE", "/v1/agents/{agent_id}/sampling", None),
    ("GET", "/v1/threads/{thread_id}", None),
    ("PATCH", "/v1/threads/{thread_id}", {"title": "mine now"}),
    ("DELETE", "/v1/threads/{thread_id}", None),
    ("POST", "/v1/threads/{thread_id}/fork", {}),
    ("GET", "/v1/threads/{thread_id}/forks", None),
    ("GET", "/v1/threads/{thread_id}/state", None),
    ("PUT", "/v1/threads/{thread_id}/state", {"state": {"mine": "now"}, "version": 0}),
    ("PATCH", "/v1/threads/{thread_id}/state", {"patch": {"mine": "now"}}),
    ("GET", "/v1/threads/{thread_id}/messages", None),
    ("GET", "/v1/threads/{thread_id}/turns", None),
    ("GET", "/v1/threads/{thread_id}/runs", None),
    ("POST", "/v1/threads/{thread_id}/runs", {"message": "hello"}),
    ("POST", "/v1/threads/{thread_id}/turns/{turn_id}/restore", None),
    ("POST", "/v1/threads/{thread_id}/runs/wait", {"message": "hello"}),
    ("POST", "/v1/threads/{thread_id}/runs/stream", {"message": "hello"}),
    ("GET", "/v1/runs/{run_id}", None),
    ("PATCH", "/v1/runs/{run_id}", {"message": "mine now"}),
    ("DELETE", "/v1/runs/{run_id}", None),
    ("POST", "/v1/runs/{run_id}/cancel", None),
    ("POST", "/v1/runs/{run_id}/retry", None),
    ("GET", "/v1/runs/{run_id}/reasons", None),
    ("POST", "/v1/runs/{run_id}/kick", None),
    ("POST", "/v1/runs/{run_id}/requeue", None),
    ("POST", "/v1/runs/{run_id}/fail", {"reason": "mine now"}),
    ("GET", "/v1/runs/{run_id}/events", None),
    ("GET", "/v1/runs/{run_id}/wait", None),
    ("GET", "/v1/runs/{run_id}/timeline", None),
    ("GET", "/v1/runs/{run_id}/steps/{step}/request", None),
    ("POST", "/v1/keys/{key_id}/rotate", {}),
    ("DELETE", "/v1/keys/{key_id}", None),
    ("DELETE", "/v1/sign-ins/{session_id}", None),
    ("PATCH", "/v1/agents/{agent_id}", {"description": "mine now"}),
    ("GET", "/v1/agents/{agent_id}/versions/{version}", None),
    ("GET", "/v1/agents/{agent_id}/tool-servers", None),
    ("POST", "/v1/runs/{run_id}/answers", {"text": "yes"}),
    ("POST", "/v1/runs/{run_id}/tool-results", {"results": [{"tool_call_id": "call_0"}]}),
    ("GET", "/v1/deliveries/{delivery_id}", None),
    ("POST", "/v1/deliveries/{delivery_id}/replay", None),
    ("POST", "/v1/deliveries/{delivery_id}/close", None),
    ("POST", "/v1/delivery-targets/{target}/retry", None),
    ("POST", "/v1/inbound-channels/{channel}/retry", None),
    ("GET", "/v1/files/{file_id}", None),
    ("GET", "/v1/files/{file_id}/content", None),
    ("DELETE", "/v1/files/{file_id}", None),
    ("DELETE", "/v1/memories/{memory_id}", None),
    ("GET", "/v1/notes/{note_id}", None),
    ("PATCH", "/v1/notes/{note_id}", {"title": "mine now"}),
    ("DELETE", "/v1/notes/{note_id}", None),
    ("DELETE", "/v1/secrets/{name}", None),
    ("GET", "/v1/projects/{project}/items", None),
    ("GET", "/v1/skills/{name}", None),
    ("GET", "/v1/skills/{name}/file", None),
    ("DELETE", "/v1/skills/{name}", None),
    ("GET", "/v1/tasks/{task_id}", None),
    ("PATCH", "/v1/tasks/{task_id}", {"title": "mine now"}),
    ("POST", "/v1/tasks/{task_id}/activate", None),
    ("POST", "/v1/tasks/{task_id}/cancel", {}),
    ("POST", "/v1/tasks/{task_id}/complete", {}),
    ("GET", "/v1/tasks/{task_id}/history", None),
    ("POST", "/v1/tasks/{task_id}/resources", {"kind": "url", "value": "https://example.com"}),
    ("DELETE", "/v1/tasks/{task_id}/resources/{resource_id}", None),
    ("POST", "/v1/tasks/{task_id}/run", None),
    ("PUT", "/v1/tasks/{task_id}/steps", {"steps": []}),
    ("PATCH", "/v1/tasks/{task_id}/steps/{step_id}", {"done": True}),
    ("POST", "/v1/tasks/{task_id}/steps/{step_id}/subtask", {"owner_agent_id": "nova"}),
    ("GET", "/v1/triggers/{trigger_id}", None),
    ("PATCH", "/v1/triggers/{trigger_id}", {"title": "mine now"}),
    ("DELETE", "/v1/triggers/{trigger_id}", None),
    ("POST", "/v1/triggers/{trigger_id}/fire", None),
    ("POST", "/v1/triggers/{trigger_id}/resume", None),
    ("GET", "/v1/triggers/{trigger_id}/firings", None),
    ("GET", "/v1/triggers/{trigger_id}/preview", None),
    ("GET", "/v1/webhooks/{webhook_id}", None),
    ("PATCH", "/v1/webhooks/{webhook_id}", {"description": "mine now"}),
    ("DELETE", "/v1/webhooks/{webhook_id}", None),
    ("POST", "/v1/webhooks/{webhook_id}/rotate", {}),
    ("POST", "/v1/webhooks/{webhook_id}/test", None),
    ("GET", "/v1/orchestrations/{orchestration_id}", None),
    ("GET", "/v1/orchestrations/{orchestration_id}/tree", None),
    ("GET", "/v1/orchestrations/{orchestration_id}/messages", None),
    ("GET", "/v1/orchestrations/{orchestration_id}/changes", None),
    ("GET", "/v1/orchestrations/{orchestration_id}/events", None),
    ("POST", "/v1/orchestrations/{orchestration_id}/continue", {"task": "mine now"}),
    ("POST", "/v1/orchestrations/{orchestration_id}/continue/wait", {"task": "mine now"}),
    ("GET", "/v1/orchestrations/{orchestration_id}/wait", None),
    ("POST", "/v1/orchestrations/{orchestration_id}/master/calls", {"tool": "get_children_status"}),
    ("POST", "/v1/orchestrations/{orchestration_id}/master/complete", {"summary": "mine now"}),
    ("POST", "/v1/orchestrations/{orchestration_id}/kill", {}),
    ("POST", "/v1/orchestrations/{orchestration_id}/agents/{agent}/prompt", {"text": "mine now"}),
    ("GET", "/v1/orchestrations/{orchestration_id}/agents/{agent}/history", None),
    ("GET", "/v1/orchestrations/config/versions/{version}", None),
    ("GET", "/v1/work-orders/{trace_id}", None),
    ("GET", "/v1/work-orders/{trace_id}/internal", None),
    ("GET", "/v1/work-orders/{trace_id}/wait", None),
    ("POST", "/v1/work-orders/{trace_id}/cancel", None),
    ("POST", "/v1/work-orders/{trace_id}/review", {"verdict": "reject"}),
    ("GET", "/v1/work-orders/{trace_id}/parts", None),
    ("GET", "/v1/work-orders/{trace_id}/trail", None),
    ("GET", "/v1/work-orders/{trace_id}/internal-trail", None),
    ("GET", "/v1/work-order-policies/{policy_id}", None),
    ("GET", "/v1/work-order-policies/{policy_id}/versions", None),
    ("DELETE", "/v1/work-order-policies/{policy_id}", None),
    ("DELETE", "/v1/work-order-secrets/{secret_id}", None),
    ("DELETE", "/v1/run-lists/{list_id}", None),
    ("DELETE", "/v1/pairings/{pairing_id}", None),
    ("POST", "/v1/runs/{run_id}/feedback", {"score": 1}),
    ("GET", "/v1/runs/{run_id}/feedback", None),
    ("DELETE", "/v1/feedback/{feedback_id}", None),
    ("GET", "/v1/agents/{agent_id}/feedback", None),
    ("GET", "/v1/datasets/{dataset}", None),
    ("PATCH", "/v1/datasets/{dataset}", {"description": "x"}),
    ("GET", "/v1/datasets/{dataset}/examples", None),
    ("POST", "/v1/datasets/{dataset}/examples", {"examples": [{"input": "x"}]}),
    ("POST", "/v1/datasets/{dataset}/from-runs", {"runs": {"status": "failed"}}),
    ("DELETE", "/v1/datasets/{dataset}/examples/{key}", None),
    ("DELETE", "/v1/datasets/{dataset}", None),
    ("GET", "/v1/evaluations/{evaluation_id}", None),
    ("GET", "/v1/evaluations/{evaluation_id}/trials", None),
    ("POST", "/v1/evaluations/{evaluation_id}/cancel", None),
    ("DELETE", "/v1/evaluations/{evaluation_id}", None),
]
# Names are per tenant: these create a row of that name.
MAKES_ITS_OWN = {
    ("PUT", "/v1/secrets/{name}"),
    ("PUT", "/v1/skills/{name}"),
    ("PUT", "/v1/leases/{name}"),
    ("PUT", "/v1/work-order-policies/{policy_id}"),
}
OPERATORS_ONLY = {
    *((method, "/v1/tenants/{tenant_id}") for method in ("GET", "PATCH", "DELETE")),
    ("POST", "/v1/fleet/workers/{worker_id}/drain"),
}
"""Refused with 403 to a key without the scope `operator`, whatever the id: tested with tenants, and with workers."""
LISTS = (
    "/v1/threads",
    "/v1/runs",
    "/v1/runs.csv",
    "/v1/keys",
    "/v1/run-lists",
    "/v1/sign-ins",
    "/v1/pairings",
    "/v1/feedback",
    "/v1/datasets",
    "/v1/evaluations",
    "/v1/agents",
    "/v1/waits",
    "/v1/tasks",
    "/v1/notes",
    "/v1/files",
    "/v1/deliveries",
    "/v1/delivery-targets",
    "/v1/inbound-channels",
    "/v1/memories",
    "/v1/skills",
    "/v1/secrets",
    "/v1/triggers",
    "/v1/webhooks",
    "/v1/usage",
    "/v1/audit",
    "/v1/attention",
    "/v1/activity",
    "/v1/orchestrations",
    "/v1/orchestrations/config",
    "/v1/work-orders",
    "/v1/work-order-policies",
    "/v1/work-order-secrets",
    "/v1/export",
)
# Ids in bodies, which must not reach further either.
IN_BODY: list[tuple[str, str, str]] = [
    ("POST", "/v1/runs", "thread_id"),
    ("POST", "/v1/runs/wait", "thread_id"),
    ("POST", "/v1/runs/stream", "thread_id"),
]


_SKILL_MD = "---\nname: their-skill\ndescription: Theirs\n---\nSecret"
_ROWS = """
WITH file AS (
    INSERT INTO sent_files (id, tenant_id, agent_id, thread_id, run_id, name, media_type, content)
    VALUES (:file_id, :tenant_id, 'their-agent', 'thr', 'run', 'secret.txt', 'text/plain', 'secret')
), delivery AS (
    INSERT INTO deliveries (id, tenant_id, kind, target, payload)
    VALUES (:delivery_id, :tenant_id, 'notification', 'user', '{}')
), webhook AS (
    INSERT INTO webhooks (id, tenant_id, url, secret, key_id)
    VALUES (:webhook_id, :tenant_id, 'https://example.com', 'secret', 'k')
), order_secret AS (
    INSERT INTO work_order_secrets (id, tenant_id, ciphertext, key_id)
    VALUES (:secret_id, :tenant_id, 'secret', 'k')
), work_order AS (
    INSERT INTO work_orders (id, tenant_id, scope, policy_id, policy_version, schema_version, trace, fingerprint, state,
                             stop_reason, max_rounds, max_tokens, max_cost_usd, least_output_tokens, ttl_hours,
                             deadline_at)
    VALUES (:trace_id, :tenant_id, 'secret', 'p', '1', '1', '{}', 'f', 'ended', 'ok', 1, 1, 1, 1, 1, now())
), numbers AS (
    UPDATE tenants SET next_task_id = 471100 WHERE id = :tenant_id
)
INSERT INTO secrets (tenant_id, name, ciphertext, key_id, updated_by)
VALUES (:tenant_id, 'THEIR_TOKEN', 'secret', 'k', 'x')
"""


_FEEDBACK = """
INSERT INTO feedback (id, tenant_id, run_id, thread_id, agent_id, name, comment, source, key_id)
VALUES (:feedback_id, :tenant_id, :run_id, :thread_id, 'their-agent', 'rating', 'secret', 'person', 'k')
"""


async def _theirs(other: Any, other_tenant: Tenant, database: Database) -> dict[str, str]:
    """Create one row of each kind in another tenant, and return the ids."""
    rows = {
        "file_id": new_id("file"),
        "delivery_id": new_id("dlv"),
        "webhook_id": new_id("whk"),
        "secret_id": new_id("wos"),
        "trace_id": new_id("trc"),
    }
    await database.execute(_ROWS, tenant_id=other_tenant.id, **rows)
    await other.post("/v1/agents", json={"id": "their-agent", "name": "Theirs"})
    thread = (await other.post("/v1/threads", json={"agent_id": "their-agent"})).json()
    run = (await other.post(f"/v1/threads/{thread['id']}/runs", json={"message": "secret"})).json()
    feedback_id = new_id("fbk")
    await database.execute(
        _FEEDBACK, feedback_id=feedback_id, tenant_id=other_tenant.id, run_id=run["id"], thread_id=thread["id"]
    )
    await other.post("/v1/datasets", json={"name": "their-dataset", "description": "secret"})
    example = {"key": "their-example", "input": "secret"}
    await other.post("/v1/datasets/their-dataset/examples", json={"examples": [example]})
    start = {"agent": "their-agent", "version": 1, "dataset": "their-dataset"}
    evaluation = (await other.post("/v1/evaluations", json=start)).json()
    note = (await other.post("/v1/notes", json={"agent_id": "their-agent", "title": "Secret"})).json()
    memory = (await other.post("/v1/memories", json={"content": "Secret"})).json()
    tree = (await other.post("/v1/orchestrations", json={"agent_id": "their-agent", "task": "Secret"})).json()
    await other.put("/v1/orchestrations/config", json={"text": "engine:\n  max_agent_depth: 3\n"})
    await other.put("/v1/work-order-policies/their-policy", json={"document": POLICY | {"id": "their-policy"}})
    await other.put("/v1/skills/their-skill", json={"skill_md": _SKILL_MD})
    their_project = {"project": "theirs", "skills": [{"name": "their-skill", "skill_md": _SKILL_MD}]}
    await other.post("/v1/projects/apply", json=their_project)
    trigger = {"agent_id": "their-agent", "kind": "every", "schedule": "3600", "prompt": "Secret"}
    task = await other.post(
        "/v1/tasks",
        json={
            "title": "Secret",
            "owner_agent_id": "their-agent",
            "steps": [{"title": "Secret"}],
            "resources": [{"kind": "url", "value": "https://example.com/secret"}],
        },
    )
    await other.post("/v1/pairings", json={"channel": "telegram", "sender": "1"})
    return {
        "tenant_id": other_tenant.id,
        "target": rows["webhook_id"],
        "pairing_id": (await other.get("/v1/pairings")).json()["items"][0]["id"],
        "channel": await _their_channel(other),
        "list_id": (await other.post("/v1/run-lists", json={"name": "Secret", "query": {}})).json()["id"],
        "agent_id": "their-agent",
        # The agent is looked up before it.
        "rollout_id": new_id("rol"),
        "thread_id": thread["id"],
        "run_id": run["id"],
        "feedback_id": feedback_id,
        "dataset": "their-dataset",
        "evaluation_id": evaluation["id"],
        "key": "their-example",
        "session_id": (await other.post("/v1/sign-ins", json={})).json()["session_id"],
        "key_id": other_tenant.key_id,
        "note_id": note["id"],
        "memory_id": memory["id"],
        "trigger_id": (await other.post("/v1/triggers", json=trigger)).json()["id"],
        "orchestration_id": tree["id"],
        "agent": tree["master_id"],
        "task_id": str(task.json()["id"]),
        "step": "424242",
        "step_id": task.json()["steps"][0]["id"],
        "resource_id": task.json()["resources"][0]["id"],
        "skill": "their-skill",
        "project": "theirs",
        "policy_id": "their-policy",
        # The route looks for the thread first.
        "turn_id": new_id("turn"),
        "secret": "THEIR_TOKEN",
        **rows,
    }


def _unknown_id(name: str, value: str) -> str:
    """Return an id of the same length and form that no row has."""
    if name in ("task_id", "step"):
        return str(int(value) + 1)
    return value[:-4] + (
        "zzzz" if name in ("agent_id", "skill", "policy_id", "project", "dataset", "channel") else "ZZZZ"
    )


async def _their_channel(other: httpx2.AsyncClient) -> str:
    await other.put("/v1/leases/channel:their-bot", json={"holder": "a", "ttl_s": 30})
    return "their-bot"


def _filled(path: str, ids: dict[str, str]) -> str:
    own = {"name": ids["secret" if path.startswith("/v1/secrets") else "skill"], "version": "1"}
    return path.format(**ids, **own) + ("?path=a.txt" if path.endswith("/file") else "")


@pytest.fixture(scope="module")
def theirs(shared: SharedServers, shared_api_url: str) -> dict[str, str]:
    """One row of each kind in a tenant of the shared database, by the names of their ids. No test may change them."""
    other_tenant = shared.make_tenant()

    async def make() -> dict[str, str]:
        headers = {"Authorization": f"Bearer {other_tenant.key}"}
        async with httpx2.AsyncClient(base_url=shared_api_url, headers=headers, timeout=60, verify=False) as other:
            return await _theirs(other, other_tenant, shared.database)

    return shared.wait(make())


@pytest.mark.parametrize(("method", "path", "body"), BY_ID)
@proves("input.unknown")
async def test_another_tenant_s_id_is_refused_exactly_like_an_unknown_one(
    api: Api, theirs: dict[str, str], method: str, path: str, body: Any
) -> None:
    before = await _state(api, theirs)
    # Of the same length and form, so that nothing but the id itself differs.
    unknown_ids = {name: _unknown_id(name, value) for name, value in theirs.items()}
    foreign = await api.http.request(method, _filled(path, theirs), json=body)
    unknown = await api.http.request(method, _filled(path, unknown_ids), json=body)
    assert foreign.status_code == unknown.status_code == 404
    text = foreign.text
    for name, value in theirs.items():
        text = text.replace(value, unknown_ids[name])
    assert text == unknown.text
    assert set(foreign.headers) == set(unknown.headers)
    assert await _state(api, theirs) == before, "nothing changed"


@pytest.mark.parametrize(("method", "path", "field"), IN_BODY)
@proves("input.unknown")
async def test_another_tenant_s_thread_in_a_body_is_not_found(
    api: Api, theirs: dict[str, str], method: str, path: str, field: str
) -> None:
    before = await _state(api, theirs)
    answer = await api.http.request(method, path, json={"message": "hello", field: theirs[field]})
    assert answer.status_code == 404
    assert await _state(api, theirs) == before


@proves("input.unknown")
async def test_lists_filters_and_bulk_cancels_stay_within_the_tenant(
    api: Api, other_tenant: Tenant, worker: ManualWorker, database: Database
) -> None:
    async with api.client(other_tenant.key) as other:
        theirs = await _theirs(other, other_tenant, database)
        for path in LISTS:
            text = (await api.http.get(path)).text
            assert not any(value in text for value in theirs.values()), path
        filtered = await api.http.get("/v1/runs", params={"thread_id": theirs["thread_id"]})
        assert filtered.json()["items"] == []
        canceled = await api.http.post(
            "/v1/runs/cancel", json={"run_ids": [theirs["run_id"]], "thread_id": theirs["thread_id"]}
        )
        assert canceled.json() == {"canceled": 0, "requested": 0}
        assert (await other.get(f"/v1/runs/{theirs['run_id']}")).json()["status"] == "queued"
        mine = await api.thread()
        await api.run(mine)
        turn = await worker.play(mine)
        fork = await other.post(f"/v1/threads/{theirs['thread_id']}/fork", json={"turn_id": turn.claim.turn_id})
        assert fork.status_code == 404


async def test_an_agent_s_pause_in_one_tenant_holds_back_no_other(api: Api, other_tenant: Tenant) -> None:
    await api.http.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "nova"})
    async with api.client(other_tenant.key) as other:
        run_id = (await other.post("/v1/runs", json={"message": "hello"})).json()["id"]
        assert (await other.get(f"/v1/runs/{run_id}")).json()["waiting_for"].startswith("no worker is alive")


@proves("input.unknown")
def test_the_matrix_names_every_route_with_an_id(openapi: dict[str, Any]) -> None:
    routes = {(method.upper(), path) for path, item in openapi["paths"].items() for method in item if "{" in path}
    assert {(method, path) for method, path, _ in BY_ID} | MAKES_ITS_OWN | OPERATORS_ONLY == routes


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer nova_wrong", "Basic bm92YTpub3Zh", "Bearer \xe9", "bearer x y", "nova_x"],
)
@proves("security.keys")
async def test_a_request_without_a_valid_key_is_refused(api: Api, authorization: str | None) -> None:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    async with api.client(None) as stranger:
        answer = await stranger.get("/v1/runs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "unauthenticated"


@proves("security.keys")
def test_every_route_of_v1_needs_a_key(openapi: dict[str, Any]) -> None:
    for path, item in openapi["paths"].items():
        for method, operation in item.items():
            assert bool(operation.get("security")) == path.startswith("/v1/"), (method, path)


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (("runs",), {"/v1/runs", "/v1/threads", "/v1/fleet"}),
        (("runs:read",), {"/v1/runs", "/v1/threads", "/v1/fleet"}),
        (("agents:read",), {"/v1/agents", "/v1/capabilities", "/v1/fleet"}),
        (("agents",), {"/v1/agents", "/v1/capabilities", "/v1/fleet"}),
        (("keys",), {"/v1/keys", "/v1/fleet"}),
        (("operator",), {"/v1/fleet"}),
    ],
)
@proves("security.scopes")
async def test_a_key_reaches_only_what_its_scopes_cover(
    api: Api, database: Database, scopes: tuple[str, ...], allowed: set[str]
) -> None:
    key = (await make_tenant(database, scopes, api.tenant.id)).key
    everything = {"/v1/runs", "/v1/threads", "/v1/agents", "/v1/capabilities", "/v1/keys", "/v1/fleet"}
    async with api.client(key) as narrow:
        for path in everything:
            answer = await narrow.get(path)
            assert answer.status_code == (200 if path in allowed else 403), path
            if answer.status_code == 403:
                assert answer.json()["code"] == "forbidden"
                assert "scope" in answer.json()["detail"]


@proves("security.scopes")
async def test_a_key_cannot_give_a_scope_that_it_lacks(api: Api, database: Database) -> None:
    key = (await make_tenant(database, ("keys", "runs"), api.tenant.id)).key
    async with api.client(key) as narrow:
        assert (await narrow.post("/v1/keys", json={"name": "x", "scopes": ["runs"]})).status_code == 201
        refused = await narrow.post("/v1/keys", json={"name": "x", "scopes": ["runs", "operator"]})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "operator")


@proves("security.keys")
async def test_a_new_key_is_shown_once_works_and_is_revoked(api: Api, database: Database) -> None:
    made = (await api.http.post("/v1/keys", json={"name": "ci", "scopes": ["runs"]})).json()
    assert made["key"].startswith(made["prefix"])
    listed = (await api.http.get("/v1/keys")).text
    assert made["prefix"] in listed
    assert made["key"] not in listed
    kept = await database.fetchval("SELECT string_agg(api_keys::text, ' ') FROM api_keys")
    assert made["key"].removeprefix(made["prefix"]) not in kept
    async with api.client(made["key"]) as client:
        assert (await client.get("/v1/runs")).status_code == 200
        for _ in range(2):
            assert (await api.http.delete(f"/v1/keys/{made['id']}")).status_code == 204
        assert (await client.get("/v1/runs")).status_code == 401


async def test_a_key_of_any_scope_names_itself_and_its_tenant(api: Api, database: Database) -> None:
    narrow = await make_tenant(database, ("secrets", "runs"), api.tenant.id)
    async with NovaClient(api.url, narrow.key) as nova:
        identity = await nova.whoami()
    assert (identity.key_id, identity.tenant_id) == (narrow.key_id, api.tenant.id)
    assert identity.scopes == ["runs", "secrets"]
    assert (identity.expires_at, identity.timezone) == (None, "UTC")
    assert identity.prefix == narrow.key[: len(identity.prefix)]
    assert narrow.key not in identity.model_dump_json()
    async with NovaClient(api.url, "nova_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.whoami()


async def test_a_key_revoked_elsewhere_stops_within_the_cache_s_life(serve: Serve, settings: Settings) -> None:
    quick = settings.model_copy(update={"api": settings.api.model_copy(update={"key_cache_s": 0.2})})
    here, elsewhere = await serve(quick), await serve(quick)
    made = (await here.http.post("/v1/keys", json={"name": "ci", "scopes": ["runs"]})).json()
    async with elsewhere.client(made["key"]) as client:
        assert (await client.get("/v1/runs")).status_code == 200
        await here.http.delete(f"/v1/keys/{made['id']}")

        async def refused() -> bool:
            return (await client.get("/v1/runs")).status_code == 401

        await until(refused)


async def test_an_expired_key_is_refused_at_once_although_it_is_cached(
    serve: Serve, settings: Settings, database: Database
) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"key_cache_s": 60.0})}))
    made = (await api.http.post("/v1/keys", json={"name": "brief", "expires_at": "2099-01-01T00:00:00Z"})).json()
    await database.execute(
        "UPDATE api_keys SET expires_at = now() + interval '8 s' WHERE id = :key_id", key_id=made["id"]
    )
    async with api.client(made["key"]) as client:
        assert (await client.get("/v1/runs")).status_code == 200

        async def refused() -> bool:
            return (await client.get("/v1/runs")).status_code == 401

        await until(refused)


_STATE = """
SELECT jsonb_build_array(
    (SELECT jsonb_agg(jsonb_build_array(id, status, content, cancel_requested_at) ORDER BY id)
       FROM runs WHERE tenant_id = ANY(:tenant_ids)),
    (SELECT jsonb_agg(jsonb_build_array(id, title, deleted_at, next_seq) ORDER BY id)
       FROM threads WHERE tenant_id = ANY(:tenant_ids)),
    (SELECT jsonb_agg(jsonb_build_array(tenant_id, id, version, deleted_at) ORDER BY tenant_id, id)
       FROM agents WHERE tenant_id = ANY(:tenant_ids)),
    (SELECT jsonb_agg(jsonb_build_array(id, revoked_at) ORDER BY id)
       FROM api_keys WHERE tenant_id = ANY(:tenant_ids))
)::text
"""


async def _state(api: Api, theirs: dict[str, str]) -> str:
    """Return everything of both tenants that a request without a right must not change."""
    return await api.fetchval(_STATE, tenant_ids=[api.tenant.id, theirs["tenant_id"]])
