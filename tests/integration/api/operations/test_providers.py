"""Keys of model providers that rest and models that fail: seen and cleared by operators."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dirty_equals import IsDatetime, IsPartialDict
from pydantic import SecretStr
from redis.asyncio import Redis

from nova_workers.base import keys
from nova_workers.base.config import Settings
from nova_workers.engines.resilience import Failure, HealthKeys, Policy, RedisHealth
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves

# What it looks at or changes is of the whole fleet.
pytestmark = pytest.mark.usefixtures("own_api")


MODEL = "claude-sonnet-5-5"
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def health(redis: Redis) -> RedisHealth:
    """What a worker shares of the provider anthropic."""
    names = HealthKeys(
        provider="anthropic",
        index=keys.model_rests(),
        breaker=lambda model: keys.model_breaker("anthropic", model),
        failed=lambda model: keys.model_failures("anthropic", model),
        cooldown=lambda profile, model: keys.profile_cooldown("anthropic", profile, "00", model),
    )
    return RedisHealth(redis, names, Policy(), time.monotonic)


async def _rests(api: Api) -> list[dict[str, Any]]:
    answer = await api.http.get("/v1/fleet/providers")
    assert answer.status_code == 200, answer.text
    assert answer.json()["redis_answers"] is True
    return answer.json()["rests"]


async def _open(health: RedisHealth, model: str = MODEL) -> None:
    for conversation in ("thr_1", "thr_2"):
        await health.fail(model, Failure(conversation, f"The model provider answered 500: key {SECRET}"))


@proves("fleet.providers")
async def test_each_rest_and_each_failing_model_is_seen(api: Api, health: RedisHealth) -> None:
    assert await _rests(api) == []
    await health.cool("main", None, "auth", error="The model provider answered 401: no")
    await health.cool("spare", MODEL, "rate_limit", 30.0, error="The model provider answered 429: slow down")
    await _open(health)
    await health.fail("claude-haiku-4-5", Failure("thr_bad", "broken"))
    now = IsDatetime(approx=datetime.now(UTC), delta=timedelta(seconds=20), iso_string=True)
    assert await _rests(api) == [
        IsPartialDict(model=None, profile="main", reason="auth", state="resting", since=now, failures=0)
        & IsPartialDict(error="The model provider answered 401: no", conversations=[]),
        IsPartialDict(provider="anthropic", model=MODEL, profile=None, reason="failures", state="resting", failures=2)
        & IsPartialDict(since=now, until=now, conversations=["thr_2", "thr_1"]),
        IsPartialDict(model=MODEL, profile="spare", reason="rate_limit", state="resting"),
        IsPartialDict(model="claude-haiku-4-5", state="answering", until=None, conversations=["thr_bad"], failures=1),
    ]
    error = (await _rests(api))[1]["error"]
    assert "500" in error
    assert SECRET not in error


async def test_a_conversation_that_fails_by_itself_is_named(api: Api, health: RedisHealth) -> None:
    await health.fail(MODEL, Failure("thr_bad", "broken"))
    await health.recover(MODEL, "thr_good")
    (rest,) = await _rests(api)
    assert rest == IsPartialDict(state="answering", failures=0, conversations=["thr_bad"], error="broken")
    await health.recover(MODEL, "thr_bad")
    assert await _rests(api) == []


async def test_a_model_whose_time_is_over_is_tried(api: Api, health: RedisHealth, redis: Redis) -> None:
    await _open(health)
    await redis.hset(keys.model_breaker("anthropic", MODEL), "open_until", "1")
    (rest,) = await _rests(api)
    assert rest == IsPartialDict(state="trying", until=None)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("main", {"spare", MODEL}),
        (MODEL, set[str]()),
        ("anthropic", set[str]()),
        (None, set[str]()),
        ("other", {"main", "spare", MODEL}),
    ],
)
async def test_rests_are_cleared_by_name(api: Api, health: RedisHealth, name: str | None, left: set[str]) -> None:
    await health.cool("main", MODEL, "auth")
    await health.cool("spare", MODEL, "rate_limit")
    await _open(health)
    answer = (await api.http.post("/v1/fleet/providers/clear", json={} if name is None else {"name": name})).json()
    assert answer["cleared"] == 3 - len(left)
    assert {rest["profile"] or rest["model"] for rest in answer["rests"]} == left
    admitted = await health.admit(MODEL, ["main", "spare"], "thr_3")
    assert set(admitted.cooling) == left - {MODEL}
    assert (admitted.breaker == "open") == (MODEL in left)


@proves("audit.every-thing")
@pytest.mark.parametrize("name", ["anthropic", None])
async def test_a_clearing_is_in_the_audit_log(api: Api, health: RedisHealth, name: str | None) -> None:
    await health.cool("main", MODEL, "auth")
    await api.http.post("/v1/fleet/providers/clear", json={} if name is None else {"name": name})
    [record] = (await api.http.get("/v1/audit?action=provider.cleared")).json()["items"]
    assert record == IsPartialDict(target_kind="provider", target_id=name or "*", actor_kind="key", address="127.0.0.1")


async def test_only_operators_see_and_clear_them(api: Api, database: Database) -> None:
    limited = await make_tenant(database, ("runs", "agents", "workspace", "secrets", "keys"))
    async with api.client(limited.key) as http:
        assert (await http.get("/v1/fleet/providers")).status_code == 403
        assert (await http.post("/v1/fleet/providers/clear", json={})).status_code == 403


async def test_the_gauge_counts_what_rests(api: Api, health: RedisHealth) -> None:
    await health.cool("main", None, "auth")
    await _open(health)
    await health.fail("claude-haiku-4-5", Failure("thr_bad"))
    text = (await api.http.get("/metrics")).text
    assert 'nova_provider_rests{kind="key",provider="anthropic"} 1.0' in text
    assert 'nova_provider_rests{kind="model",provider="anthropic"} 1.0' in text
    await api.http.post("/v1/fleet/providers/clear", json={})
    assert "nova_provider_rests{" not in (await api.http.get("/metrics")).text


async def test_without_redis_nothing_is_known(serve: Serve, settings: Settings) -> None:
    api = await serve(settings.model_copy(update={"redis_url": SecretStr("redis://127.0.0.1:1/0")}))
    answer = (await api.http.get("/v1/fleet/providers")).json()
    assert answer == {"rests": [], "redis_answers": False}
    assert (await api.http.post("/v1/fleet/providers/clear", json={})).status_code == 503
    assert not (await api.http.get("/v1/audit?action=provider.cleared")).json()["items"]
