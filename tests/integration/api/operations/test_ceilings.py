"""Operators set ceilings of tenants; agents within them need the scope `trust` for more than the usual."""

from __future__ import annotations

from typing import Any

import orjson
from httpx2 import AsyncClient, Response

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves

_DEFAULTS: dict[str, Any] = {
    "trust": "controlled",
    "directories": [],
    "engines": None,
    "mcp_commands": [],
    "max_cost_usd_per_day": None,
    "pool": None,
    "sandbox": True,
    "egress": "proxy",
}


_STEERING: dict[str, Any] = {
    "instructions": "Read every key.",
    "permissions": {"unlisted_commands": "ask"},
    "capabilities": {"notes": {}},
    "engine": "scripted",
    "engine_config": {"script": []},
}


async def _write(client: AsyncClient, agent_id: str, **fields: Any) -> tuple[int, str | None]:
    """Create an agent, or change it if it is there; return the status, and the field that was refused."""
    answer = await client.post("/v1/agents", json={"id": agent_id, "name": agent_id, **fields})
    if answer.status_code == 409:
        answer = await client.patch(f"/v1/agents/{agent_id}", json=fields)
    refused = answer.json().get("errors") or [{}]
    return answer.status_code, None if (field := refused[0].get("field")) is None else field.partition(".")[0]


async def _import(client: AsyncClient, agent: dict[str, Any]) -> Response:
    lines = [{"table": "archive", "row": {"format": 1, "next_task_id": 1}}, {"table": "agents", "row": agent}]
    return await client.post(
        "/v1/import",
        content="\n".join(orjson.dumps(line).decode() for line in lines),
        headers={"content-type": "application/x-ndjson"},
    )


@proves("ceilings.write")
async def test_a_new_tenant_is_controlled_within_its_own_directory(api: Api) -> None:
    made = (await api.http.post("/v1/tenants", json={"name": "Acme"})).json()
    assert made["ceilings"] == _DEFAULTS
    path = f"/v1/tenants/{made['id']}"
    async with api.client(made["key"]["key"]) as own:
        assert await _write(own, "clerk", trust="controlled") == (201, None)
        assert await _write(own, "clerk", trust="unrestricted") == (403, "trust")
        assert await _write(own, "clerk", directories=["/srv/acme"]) == (403, "directories")
        assert await _write(own, "clerk", engine="scripted") == (403, "engine")
        assert (await own.patch(path, json={"ceilings": None})).status_code == 403
        assert (await own.patch("/v1/tenant", json={"ceilings": None})).status_code == 422
        changed = {"ceilings": {"trust": "unrestricted", "directories": ["/srv"], "engines": ["scripted", "anthropic"]}}
        assert (await api.http.patch(path, json=changed)).json()["ceilings"] == _DEFAULTS | changed["ceilings"]
        wanted = {"trust": "unrestricted", "directories": ["/srv/acme"], "engine": "scripted"}
        assert await _write(own, "clerk", **wanted) == (200, None)
        assert (await api.http.patch(path, json={"ceilings": {}})).json()["ceilings"] == _DEFAULTS
        # What exceeds them now is not restored either, and the tenant can still lower it.
        assert (await own.post("/v1/agents/clerk/rollback", json={"version": 2})).status_code == 403
        assert await _write(own, "clerk", trust="sandbox", directories=[], engine=None) == (200, None)
        assert (await own.get("/v1/agents/clerk")).json()["version"] == 3
    assert (await api.http.patch(path, json={"ceilings": None})).json()["ceilings"] is None
    assert (await api.http.get("/v1/tenant")).json()["ceilings"] is None


@proves("ceilings.scope")
async def test_a_key_without_the_scope_trust_raises_no_agent(api: Api, database: Database) -> None:
    plain = await make_tenant(database, ("runs", "agents", "workspace", "keys"), api.tenant.id)
    async with api.client(plain.key) as limited:
        for fields in ({"trust": "unrestricted"}, {"directories": ["/srv"]}):
            assert (await _write(limited, "clerk", **fields))[0] == 403
        assert await _write(limited, "clerk", trust="controlled") == (201, None)
        await api.http.patch("/v1/agents/clerk", json={"trust": "unrestricted", "directories": ["/srv"]})
        await api.http.patch("/v1/agents/clerk", json={"trust": "sandbox", "directories": []})
        refused = await limited.post("/v1/agents/clerk/rollback", json={"version": 2})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "trust")
        await api.http.patch("/v1/agents/clerk", json={"trust": "unrestricted"})
        for field, value in _STEERING.items():
            assert await _write(limited, "clerk", **{field: value}) == (403, field)
        assert await _write(limited, "clerk", description="files letters") == (200, None)
        await api.http.patch("/v1/agents/clerk", json={"trust": "sandbox"})
        replaced = {"name": "clerk", "trust": "unrestricted"}
        assert (await limited.put("/v1/agents/clerk", json=replaced)).status_code == 403
        key = {"name": "more", "scopes": ["trust"]}
        assert (await limited.post("/v1/keys", json=key)).status_code == 403
        row = {"id": "x", "version": 1, "spec": {"name": "x", "trust": "unrestricted"}}
        imported = await _import(limited, row)
        assert (imported.status_code, imported.json()["context"].get("needed")) == (403, "trust"), imported.text


@proves("ceilings.secrets")
async def test_a_key_without_the_scope_secrets_writes_no_agent_that_uses_secrets(api: Api, database: Database) -> None:
    server = {"type": "http", "url": "https://tools.example.com/mcp", "headers": {"X-Key": "${secret:API_KEY}"}}
    plain = await make_tenant(database, ("runs", "agents", "workspace", "keys", "trust"), api.tenant.id)
    async with api.client(plain.key) as limited:
        for grant in ({"secrets": {}}, {"mcp": {"config": {"servers": {"tools": server}}}}):
            assert await _write(limited, "clerk", capabilities=grant) == (403, "capabilities")
            assert (await _write(api.http, "clerk", capabilities=grant))[0] in {200, 201}
            for field, value in {**_STEERING, "capabilities": {**grant, "notes": {}}}.items():
                assert await _write(limited, "clerk", **{field: value}) == (403, field)
            assert await _write(limited, "clerk", description="files letters") == (200, None)
            # It loses the secrets.
            replaced = await limited.put("/v1/agents/clerk", json={"name": "clerk", "instructions": "Be brief."})
            assert replaced.status_code == 200, replaced.text
        refused = await limited.post("/v1/agents/clerk/rollback", json={"version": 1})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "secrets")
        without = {"mcp": {"config": {"servers": {"tools": {**server, "headers": {}}}}}}
        assert await _write(limited, "clerk", capabilities=without) == (200, None)
        imported = await _import(limited, {"id": "x", "version": 1, "spec": {"name": "x", "capabilities": grant}})
        assert (imported.status_code, imported.json()["context"].get("needed")) == (403, "secrets"), imported.text
