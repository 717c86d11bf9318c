"""`nova security check` before a fleet with walls, and before a server without any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import Unavailable
from nova_workers.base.vocabulary import QUEUES
from nova_workers.cli.security.walls import check_walls
from nova_workers.cli.target import Target
from nova_workers.console.app import build_console
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.ledger.database import Database
from nova_workers.worker.presence import Presence
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves
from tests.support.processes.fleet import free_port
from tests.support.servers.asgi import serving

_ROWS = "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM threads) + (SELECT count(*) FROM api_keys)"
_WORKER = {
    **{"id": "wkr_1", "host": "box", "pid": 1, "queues": [], "slots": 1, "busy": 0},
    **{"draining": False, "seen_at": "2030-01-01T00:00:00Z"},
}
_LEAKED = "thr_01ARZ3NDEKTSV4RRFFQ69G5FAV"


_TRIAL = SandboxTrial(user=65_534, landlock=7, egress=["none", "proxy", "all"])


def _presence(redis: Redis, worker_id: str, sandbox: str) -> Presence:
    return Presence(
        redis,
        SystemClock(),
        worker_id=worker_id,
        queues=QUEUES,
        slots=1,
        sandbox=sandbox,
        trial=_TRIAL,
        busy=lambda: 0,
        suspects=lambda: 0,
        draining=lambda: False,
        heartbeat_dir=None,
    )


def _target(url: str, key: str | None) -> Target:
    return Target(url, key, "a test", "a test")


@proves("security.check")
async def test_a_fleet_with_its_walls_passes_and_is_left_as_it_was(
    serve: Serve, settings: Settings, database: Database, redis: Redis, other_tenant: Tenant
) -> None:
    hasty = settings.api.model_copy(update={"head_timeout_s": 5.5, "body_timeout_s": 5.5})
    api = await serve(settings.model_copy(update={"api": hasty}))
    await api.run(await api.thread())
    for worker_id, sandbox in (("wkr_1", "bubblewrap"), ("wkr_2", "namespaces")):
        await _presence(redis, worker_id, sandbox).report()
    before = await database.fetchval(_ROWS)
    console = build_console(settings, api_url=api.url, login_key=api.tenant.key)
    async with serving(console, patient=True) as console_url, serving(_locked) as flower_url:
        findings = await check_walls(
            _target(api.url, api.tenant.key),
            other_key=other_tenant.key,
            console_url=console_url,
            flower_url=flower_url,
            patience_s=60,
        )
    assert [finding for finding in findings if finding.state != "ok"] == []
    assert [finding.name for finding in findings] == [
        *("transport", "key", "headers", "metrics", "wrong keys"),
        *("routes without a key", "unknown ids", "sandbox", "another tenant"),
        *("large head", "slow head", "key before body", "large body", "deep body", "slow body"),
        *("console", "console transport", "console headers", "flower", "flower transport"),
    ]
    assert await database.fetchval(_ROWS) == before


@proves("security.check")
async def test_each_wall_that_is_missing_is_named_with_what_to_do() -> None:
    async with serving(_open) as url:
        findings = await check_walls(
            _target(url, "nova_any"), other_key="nova_other", console_url=url, flower_url=url, patience_s=0.5
        )
    failed = {finding.name for finding in findings if finding.state == "fail"}
    assert failed == {
        *("headers", "wrong keys", "routes without a key", "unknown ids", "another tenant"),
        *("large head", "key before body", "large body", "deep body", "slow body", "slow head", "console", "flower"),
    }
    assert all(finding.fix for finding in findings if finding.state == "fail")
    sandbox = next(finding for finding in findings if finding.name == "sandbox")
    assert (sandbox.state, "landlock (1), none (1)" in sandbox.detail) == ("warn", True)
    assert "none on box: No kernel is old enough" in sandbox.detail
    assert "not tried on box, which runs an earlier release" in sandbox.detail


async def test_without_a_valid_key_nothing_is_claimed_about_one(api: Api) -> None:
    findings = {finding.name: finding for finding in await check_walls(_target(api.url, "nova_no"), patience_s=0.1)}
    assert findings["key"].state == "fail"
    assert findings["routes without a key"].state == "ok"
    assert {"unknown ids", "deep body", "another tenant"}.isdisjoint(findings)


async def test_an_address_where_no_api_answers_is_an_error() -> None:
    with pytest.raises(Unavailable, match="does not answer as an API does"):
        await check_walls(_target(f"http://127.0.0.1:{free_port()}", None), patience_s=1)


async def _locked(scope: Any, receive: Any, send: Any) -> None:
    """Ask for a password, as Flower does."""
    await _answer(send, 401, {})


async def _open(scope: Any, receive: Any, send: Any) -> None:
    """Answer everything that everyone asks, whatever the body."""
    if scope["type"] != "http":
        raise NotImplementedError
    paths = {
        "/v1/threads": {"get": {}},
        "/v1/threads/{thread_id}": {"get": {}},
        "/v1/runs": {"post": {"requestBody": {}}},
    }
    key = dict(scope["headers"]).get(b"authorization", b"").decode()
    answers: dict[str, object] = {
        "/openapi.json": {"paths": paths},
        "/v1/threads": {"items": [{"id": _LEAKED}]},
        "/v1/fleet": {
            "workers": [
                _WORKER | {"sandbox": None, "sandbox_trial": {"why_none": "No kernel is old enough"}},
                _WORKER | {"sandbox": "landlock"},
            ]
        },
    }
    await _answer(send, 200, answers.get(scope["path"], {"tenant_id": key}))


async def _answer(send: Any, status: int, content: object) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})
