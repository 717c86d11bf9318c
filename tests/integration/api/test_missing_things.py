"""What the API answers about things that do not exist: one form for all kinds, whatever was asked of them."""

from __future__ import annotations

from typing import Any

from tests.integration.api.conftest import Api

_HARMLESS = frozenset({"get", "delete"})
_KNOWN_IDS = {
    "step": "0",
    "task_id": "4000000",
    "dataset": "unknown",
    "name": "UNKNOWN",
    "policy_id": "unknown",
    "project": "unknown",
    "version": "1",
}
"""Parameters whose ids have a form of their own."""
_QUERY = {"/v1/skills/{name}/file": {"path": "a.md"}, "/v1/tenants/{tenant_id}": {"confirm": "unknown_1"}}
"""Queries that requests need."""
_KINDS = {
    "agents": "agent",
    "datasets": "dataset",
    "evaluations": "evaluation",
    "deliveries": "delivery",
    "feedback": "feedback",
    "files": "file",
    "keys": "key",
    "memories": "memory",
    "notes": "note",
    "orchestrations": "orchestration",
    "work-order-policies": "order_policy",
    "work-order-secrets": "order_secret",
    "inbound-channels": "inbound_channel",
    "pairings": "pairing",
    "projects": "project",
    "run-lists": "run_list",
    "runs": "run",
    "secrets": "secret",
    "sign-ins": "session",
    "skills": "skill",
    "tasks": "task",
    "tenants": "tenant",
    "threads": "thread",
    "triggers": "trigger",
    "webhooks": "webhook",
    "work-orders": "work_order",
}


async def test_each_missing_thing_is_named_by_its_kind_and_id(api: Api, openapi: dict[str, Any]) -> None:
    asked = [
        (method.upper(), path)
        for path, item in openapi["paths"].items()
        for method, operation in item.items()
        if method in _HARMLESS and "/{" in path and "404" in operation["responses"] and "/config/" not in path
    ]
    assert len(asked) > 40
    others: dict[str, Any] = {}
    for method, path in asked:
        subject = path.split("/")[2]
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        ids = {name: _KNOWN_IDS.get(name, "unknown_1") for name in names}
        answer = await api.http.request(method, path.format(**ids), params=_QUERY.get(path))
        problem = answer.json()
        named = (answer.status_code, problem["code"], problem["context"].get("kind"), problem["context"].get("id"))
        first = ids[names[0]]
        expected = (404, "not_found", _KINDS[subject], int(first) if subject == "tasks" else first)
        if named != expected:
            others[f"{method} {path}"] = named
    assert not others, "\n".join(f"{asked}: {named}" for asked, named in others.items())


async def test_an_unknown_path_is_named_too(api: Api) -> None:
    problem = (await api.http.get("/v1/nowhere")).json()
    assert (problem["code"], problem["context"]) == ("not_found", {"kind": "endpoint", "id": "/v1/nowhere"})
