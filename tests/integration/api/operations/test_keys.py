"""Roles, networks and rotation of keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves

_USE = "UPDATE api_keys SET last_used_at = now() WHERE id = :key_id"
_SOON = timedelta(minutes=1)


async def _make(api: Api, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/keys", json={"name": "ann"} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def _rotate(api: Api, key_id: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    answer = await api.http.post(f"/v1/keys/{key_id}/rotate", json=fields)
    return answer.status_code, answer.json()


async def _listed(api: Api, key_id: str) -> dict[str, Any]:
    return next(key for key in (await api.http.get("/v1/keys")).json()["items"] if key["id"] == key_id)


async def _status(api: Api, key: str, method: str = "GET", path: str = "/v1/runs", body: Any = None) -> int:
    async with api.client(key) as client:
        return (await client.request(method, path, json=body)).status_code


@proves("security.scopes")
async def test_a_viewer_reads_and_changes_nothing(api: Api) -> None:
    viewer = await _make(api, role="viewer")
    assert (viewer["role"], viewer["scopes"]) == ("viewer", ["agents:read", "runs:read", "workspace:read"])
    note = (await api.http.post("/v1/notes", json={"agent_id": "nova", "title": "Ours"})).json()
    for path in ("/v1/runs", "/v1/agents/nova", "/v1/tasks", f"/v1/notes/{note['id']}", "/v1/usage", "/v1/fleet"):
        assert await _status(api, viewer["key"], path=path) == 200, path
    async with api.client(viewer["key"]) as client:
        attention = await client.get("/v1/attention")
    assert (attention.json()["questions"]["count"], attention.json()["tasks"]["count"]) == (0, 0)
    # Addresses of webhooks may be secrets.
    assert attention.json()["webhooks"] is None
    for method, path, body in (
        ("POST", "/v1/runs", {"message": "hello"}),
        ("POST", "/v1/runs/cancel", {}),
        ("PATCH", "/v1/agents/nova", {"description": "mine"}),
        ("PATCH", f"/v1/notes/{note['id']}", {"title": "mine"}),
        ("POST", "/v1/fleet/pause", {"scope": "tenant"}),
        ("GET", "/v1/webhooks", None),
        ("GET", "/v1/export", None),
        ("GET", "/v1/secrets", None),
        ("GET", "/v1/keys", None),
    ):
        assert await _status(api, viewer["key"], method, path, body) == 403, (method, path)


@proves("security.scopes")
async def test_an_operator_works_and_pauses_but_builds_nothing(api: Api) -> None:
    key = (await _make(api, role="operator"))["key"]
    assert await _status(api, key, "POST", "/v1/threads", {}) == 201
    assert await _status(api, key, "POST", "/v1/fleet/pause", {"scope": "tenant"}) == 200
    assert await _status(api, key, "POST", "/v1/fleet/resume", {"scope": "tenant"}) == 200
    assert await _status(api, key, "PATCH", "/v1/agents/nova", {"description": "mine"}) == 403
    assert await _status(api, key, "POST", "/v1/fleet/pause", {"scope": "fleet"}) == 403


@proves("security.keys")
async def test_a_key_is_refused_outside_of_its_networks_and_that_is_recorded(api: Api) -> None:
    here = await _make(api, networks=["127.0.0.0/8", "::1"])
    assert here["networks"] == ["127.0.0.0/8", "::1/128"]
    assert await _status(api, here["key"]) == 200
    elsewhere = await _make(api, networks=["203.0.113.0/24"])
    async with api.client(elsewhere["key"]) as client:
        refused = await client.get("/v1/runs", params={"limit": 1})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "203.0.113.0/24" in refused.json()["detail"]
    records = (await api.http.get("/v1/audit", params={"actor": elsewhere["id"]})).json()["items"]
    assert [(record["action"], record["target_id"]) for record in records] == [("access.refused", "GET /v1/runs")]
    assert (await _listed(api, elsewhere["id"]))["last_used_at"] is None


@proves("security.keys")
async def test_a_key_of_some_networks_makes_keys_within_them(api: Api, database: Database) -> None:
    bounded = await _make(api, scopes=["keys"], networks=["127.0.0.0/8"])
    free = await _make(api, scopes=["keys"])
    async with api.client(bounded["key"]) as client:
        for networks, status in ((["127.0.0.1"], 201), ([], 403), (["0.0.0.0/0"], 403)):
            made = await client.post("/v1/keys", json={"name": "x", "scopes": ["keys"], "networks": networks})
            assert made.status_code == status, networks
        assert (await client.post(f"/v1/keys/{free['id']}/rotate", json={})).status_code == 403
    narrow = (await make_tenant(database, ("keys",), api.tenant.id)).key
    mighty = await _make(api, scopes=["agents"])
    assert await _status(api, narrow, "POST", f"/v1/keys/{mighty['id']}/rotate", {}) == 403


@proves("security.keys")
async def test_a_rotated_key_is_valid_beside_its_successor_until_the_overlap_ends(api: Api) -> None:
    key = await _make(api, role="viewer", networks=["127.0.0.0/8"])
    status, successor = await _rotate(api, key["id"], overlap_s=3_600)
    assert status == 200
    for field in ("name", "role", "scopes", "networks", "expires_at"):
        assert successor[field] == key[field], field
    assert successor["key"] != key["key"]
    assert await _status(api, key["key"]) == await _status(api, successor["key"]) == 200
    old = await _listed(api, key["id"])
    assert old["replaced_by"] == successor["id"]
    assert abs(datetime.fromisoformat(old["expires_at"]) - datetime.now(UTC) - timedelta(hours=1)) < _SOON
    assert successor["key"] not in (await api.http.get("/v1/keys")).text
    records = (await api.http.get("/v1/audit", params={"target": key["id"]})).json()["items"]
    assert [record["action"] for record in records] == ["key.rotated", "key.created"]


async def test_without_an_overlap_the_key_ends_at_once(api: Api) -> None:
    key = await _make(api, scopes=["runs"])
    assert await _status(api, key["key"]) == 200
    _, successor = await _rotate(api, key["id"], overlap_s=0)
    assert await _status(api, key["key"]) == 401
    assert await _status(api, successor["key"]) == 200


async def test_a_successor_lives_as_long_as_its_predecessor_and_the_overlap_prolongs_nothing(api: Api) -> None:
    ends = datetime.now(UTC) + timedelta(days=10)
    key = await _make(api, scopes=["runs"], expires_at=ends.isoformat())
    _, successor = await _rotate(api, key["id"], overlap_s=20 * 86_400)
    assert (await _listed(api, key["id"]))["expires_at"] == key["expires_at"]
    assert abs(datetime.fromisoformat(successor["expires_at"]) - ends) < _SOON


@proves("security.keys")
async def test_a_lost_answer_is_asked_for_again_until_the_successor_is_used(api: Api, database: Database) -> None:
    key = await _make(api, scopes=["runs"])
    _, first = await _rotate(api, key["id"])
    ends = (await _listed(api, key["id"]))["expires_at"]
    status, again = await _rotate(api, key["id"], overlap_s=0)
    assert (status, again["id"], again["key"] == first["key"]) == (200, first["id"], False)
    assert await _status(api, first["key"]) == 401
    assert await _status(api, again["key"]) == 200
    assert (await _listed(api, key["id"]))["expires_at"] == ends
    await database.execute(_USE, key_id=first["id"])
    status, problem = await _rotate(api, key["id"])
    assert (status, problem["context"]["replaced_by"]) == (409, first["id"])
    assert await _status(api, again["key"]) == 200


async def test_rotations_at_the_same_moment_make_one_successor(api: Api) -> None:
    key = await _make(api, scopes=["runs"])
    answers = await asyncio.gather(*(_rotate(api, key["id"]) for _ in range(4)))
    assert {status for status, _ in answers} == {200}
    assert len({made["id"] for _, made in answers}) == 1
    assert sorted([await _status(api, made["key"]) for _, made in answers]) == [200, 401, 401, 401]


async def test_a_key_that_ended_has_no_successor(api: Api) -> None:
    key = await _make(api, scopes=["runs"])
    await api.http.delete(f"/v1/keys/{key['id']}")
    status, problem = await _rotate(api, key["id"])
    assert (status, "was revoked" in problem["detail"]) == (409, True)
