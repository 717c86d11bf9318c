"""``/v1/webhooks``, replays, and deliveries of the ends of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.bootstrap.delivery import build_routes, build_sender
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.runs import FinishStatus, PlannedEffect
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.delivery.rules.sender import DeliverySender
from nova_workers.domain.effects.rules.handler import Effect
from nova_workers.domain.effects.rules.runner import EffectRunner
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.delivery.conftest import delivery_settings, receiving
from tests.requirements import proves
from tests.support.servers.webhook_receiver import Receiver, signed_by
from tests.support.waiting import until

__all__ = ["delivery_settings", "receiving"]

HOOK = "https://hooks.example.com/nova"
EFFECTS = (
    PlannedEffect("delivery", "has_listener"),
    PlannedEffect("embeddings", "searchable"),
    PlannedEffect("title", "untitled"),
)


@pytest.fixture
async def api(serve: Serve, delivery_settings: Settings) -> Api:
    """The API of a fleet that has a master key."""
    return await serve(delivery_settings)


@pytest.fixture
async def sender(database: Database, delivery_settings: Settings) -> AsyncGenerator[DeliverySender]:
    """A worker's delivery sender."""
    routes = build_routes(database, delivery_settings)
    made = build_sender(database, delivery_settings, routes, clock=SystemClock(), metrics=Metrics(CollectorRegistry()))
    yield made
    await made.close()


@pytest.fixture
def effects(database: Database, delivery_settings: Settings) -> EffectRunner:
    """A worker's effect runner, with the effect that delivers the ends of runs."""
    return EffectRunner(
        database,
        delivery_settings.effects,
        leases=delivery_settings.runs,
        effects=[
            Effect(
                "delivery",
                "has_listener",
                RunEndEffect(Work(database), build_routes(database, delivery_settings)),
            )
        ],
        clock=SystemClock(),
        metrics=Metrics(CollectorRegistry()),
        tracing=Tracing(delivery_settings.telemetry, "worker"),
    )


async def _made(api: Api, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/webhooks", json={"url": HOOK, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


@proves("webhooks.at-rest")
async def test_a_webhook_is_made_read_changed_and_deleted_and_tells_its_secret_once(api: Api) -> None:
    made = await _made(api, description="CI", kinds=["note", "run_completed"], agent_id="nova")
    webhook = made["webhook"]
    assert made["secret"].startswith("whsec_")
    assert {key: webhook[key] for key in ("url", "description", "kinds", "agent_id", "enabled", "failures")} == {
        "url": HOOK,
        "description": "CI",
        "kinds": ["note", "run_completed"],
        "agent_id": "nova",
        "enabled": True,
        "failures": 0,
    }
    path = f"/v1/webhooks/{webhook['id']}"
    got = await api.http.get(path)
    assert got.json() == webhook
    changed = await api.http.patch(path, json={"agent_id": None, "kinds": [], "enabled": False})
    assert (changed.json()["agent_id"], changed.json()["kinds"], changed.json()["enabled"]) == (None, [], False)
    rotated = await api.http.post(f"{path}/rotate", json={"grace_s": 60})
    assert rotated.json()["secret"] not in (made["secret"], None)
    listed = await api.http.get("/v1/webhooks")
    for answer in (got, changed, listed):
        assert "whsec_" not in answer.text
    assert (await api.http.delete(path)).status_code == 204
    assert (await api.http.get(path)).status_code == 404
    assert (await api.http.delete(path)).status_code == 404


@proves("audit.webhook-scope")
async def test_only_who_may_read_the_audit_log_has_it_sent(api: Api, database: Database) -> None:
    limited = await make_tenant(database, ["workspace"], api.tenant.id)
    log = {"url": HOOK, "kinds": ["audit_recorded"]}
    async with api.client(limited.key) as client:
        refused = await client.post("/v1/webhooks", json=log)
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "keys")
        made = (await client.post("/v1/webhooks", json={"url": HOOK})).json()["webhook"]
        path = f"/v1/webhooks/{made['id']}"
        assert (await client.patch(path, json={"kinds": ["audit_recorded"]})).status_code == 403
        assert (await api.http.patch(path, json={"kinds": ["audit_recorded"]})).status_code == 200
        assert (await client.patch(path, json={"url": "https://elsewhere.example.com"})).status_code == 403
    of_agent = await api.http.post("/v1/webhooks", json={**log, "agent_id": "nova"})
    assert (of_agent.status_code, of_agent.json()["errors"][0]["field"]) == (422, "agent_id")


@proves("audit.webhook-scope")
async def test_records_are_sent_again_and_elsewhere_by_keys_that_may_read_them_only(
    api: Api, receiving: Receiver, sender: DeliverySender, database: Database
) -> None:
    limited = await make_tenant(database, ["workspace"], api.tenant.id)
    hook = (await _made(api, url=receiving.url("/log"), kinds=["audit_recorded"]))["webhook"]
    path = f"/v1/webhooks/{hook['id']}"
    await api.http.post("/v1/notes", json={"agent_id": "nova", "title": "plan"})
    await sender.run_due()
    assert {got.path for got in receiving.got} == {"/log"}
    sent, *_ = (await api.http.get("/v1/deliveries", params={"webhook_id": hook["id"]})).json()["items"]
    replay = f"/v1/deliveries/{sent['id']}/replay"
    elsewhere = {"kinds": ["notification"], "url": receiving.url("/elsewhere")}
    async with api.client(limited.key) as client:
        for method, there, body in (
            ("PATCH", path, elsewhere),
            ("PATCH", path, {"enabled": False}),
            ("POST", f"{path}/rotate", {"grace_s": 0}),
            ("DELETE", path, None),
            ("POST", replay, None),
        ):
            refused = await client.request(method, there, json=body)
            assert (refused.status_code, refused.json()["context"].get("needed")) == (403, "keys"), (there, body)
        assert (await api.http.get(path)).json() == hook
        # What it was sent while it subscribed stays in the outbox.
        assert (await api.http.patch(path, json={"kinds": ["notification"]})).status_code == 200
        assert (await client.patch(path, json=elsewhere)).status_code == 200
        assert (await client.post(replay)).status_code == 403
    assert (await api.http.post(replay)).status_code == 202

    async def shown() -> dict[str, Any]:
        return (await api.http.get(f"/v1/deliveries/{sent['id']}")).json()

    async def ended() -> bool:
        await sender.run_due()
        return (await shown())["status"] != "pending"

    await until(ended)
    last = await shown()
    assert (last["status"], last["error"]) == ("failed", "The webhook no longer subscribes to the audit log.")
    assert "/elsewhere" not in {got.path for got in receiving.got}


async def test_webhooks_are_listed_newest_first_in_pages_and_bounded(api: Api) -> None:
    ids = [(await _made(api))["webhook"]["id"] for _ in range(50)]
    page = (await api.http.get("/v1/webhooks", params={"limit": 30})).json()
    rest = (await api.http.get("/v1/webhooks", params={"limit": 30, "cursor": page["next_cursor"]})).json()
    assert [one["id"] for one in (*page["items"], *rest["items"])] == ids[::-1]
    assert (await api.http.post("/v1/webhooks", json={"url": HOOK})).status_code == 409


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "url"),
        ({"url": ""}, 422, "url"),
        ({"url": "http://example.com/"}, 422, "url"),
        ({"url": "https://10.0.0.1/"}, 422, "url"),
        ({"url": HOOK + "\u0000"}, 422, "url"),
        ({"url": "https://[::1"}, 422, "url"),
        ({"url": "https://a" + "b" * 3000}, 422, "url"),
        ({"url": HOOK, "kinds": ["pigeon"]}, 422, "kinds.0"),
        ({"url": HOOK, "kinds": ["test"]}, 422, "kinds.0"),
        ({"url": HOOK, "agent_id": "Not A Slug"}, 422, "agent_id"),
        ({"url": HOOK, "agent_id": "nobody"}, 404, None),
        ({"url": HOOK, "secret": "whsec_mine"}, 422, "secret"),
    ],
)
async def test_a_malformed_webhook_is_refused_with_the_field(
    api: Api, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = await api.http.post("/v1/webhooks", json=body)
    assert answer.status_code == status, answer.text
    if field is not None:
        assert answer.json()["errors"][0]["field"] == field
    assert (await api.http.get("/v1/webhooks")).json()["items"] == []


async def test_a_malformed_change_is_refused(api: Api) -> None:
    path = f"/v1/webhooks/{(await _made(api))['webhook']['id']}"
    for body in ({"url": None}, {"enabled": None}, {"kinds": None}, {"url": "http://example.com"}):
        assert (await api.http.patch(path, json=body)).status_code == 422
    for body in ({"grace_s": -1}, {"grace_s": 604_801}, {"grace_s": "soon"}):
        assert (await api.http.post(f"{path}/rotate", json=body)).status_code == 422
    for unknown in ("whk_none", "%00", "x" * 100):
        for method, ending in (("GET", ""), ("DELETE", ""), ("POST", "/test")):
            assert (await api.http.request(method, f"/v1/webhooks/{unknown}{ending}")).status_code == 404
        assert (await api.http.get(f"/v1/deliveries/{unknown}")).status_code == 404
        assert (await api.http.post(f"/v1/deliveries/{unknown}/replay")).status_code == 404


async def test_without_a_master_key_the_answer_says_what_to_set(serve: Serve, settings: Settings) -> None:
    keyless = await serve(settings)
    answer = await keyless.http.post("/v1/webhooks", json={"url": HOOK})
    assert answer.status_code == 409
    assert "NOVA_SECRETS__KEYS" in answer.json()["detail"]


@proves("webhooks.tenants")
async def test_another_tenant_sees_and_touches_nothing(api: Api, other_tenant: Tenant, database: Database) -> None:
    webhook_id = (await _made(api))["webhook"]["id"]
    delivery_id = (await api.http.post(f"/v1/webhooks/{webhook_id}/test")).json()["id"]
    async with api.client(other_tenant.key) as other:
        assert (await other.get("/v1/webhooks")).json()["items"] == []
        assert (await other.get("/v1/deliveries", params={"webhook_id": webhook_id})).json()["items"] == []
        for method, path, body in (
            ("GET", f"/v1/webhooks/{webhook_id}", None),
            ("PATCH", f"/v1/webhooks/{webhook_id}", {"url": "https://evil.example.com/"}),
            ("DELETE", f"/v1/webhooks/{webhook_id}", None),
            ("POST", f"/v1/webhooks/{webhook_id}/rotate", {}),
            ("POST", f"/v1/webhooks/{webhook_id}/test", None),
            ("GET", f"/v1/deliveries/{delivery_id}", None),
            ("POST", f"/v1/deliveries/{delivery_id}/replay", None),
        ):
            assert (await other.request(method, path, json=body)).status_code == 404
    assert await database.fetchval("SELECT url FROM webhooks") == HOOK


@proves("webhooks.replay")
async def test_a_test_is_sent_shown_beside_the_inbox_and_replayed(
    api: Api, receiving: Receiver, sender: DeliverySender
) -> None:
    made = await _made(api, url=receiving.url("/hook"))
    webhook_id = made["webhook"]["id"]
    asked = await api.http.post(f"/v1/webhooks/{webhook_id}/test")
    assert (asked.status_code, asked.json()["status"]) == (202, "pending")
    assert asked.json()["next_try_at"] is not None
    await sender.run_due()
    shown = (await api.http.get(f"/v1/deliveries/{asked.json()['id']}")).json()
    assert (shown["status"], shown["response_status"], shown["attempts"]) == ("delivered", 204, 1)
    assert (await api.http.get("/v1/deliveries")).json()["items"] == []
    listed = (await api.http.get("/v1/deliveries", params={"webhook_id": webhook_id})).json()["items"]
    assert listed == [shown]
    again = await api.http.post(f"/v1/deliveries/{shown['id']}/replay")
    assert again.status_code == 202
    assert (await api.http.post(f"/v1/deliveries/{shown['id']}/replay")).status_code == 409
    await sender.run_due()
    assert [got.id for got in receiving.got] == [shown["id"]] * 2
    assert all(signed_by(made["secret"], got) for got in receiving.got)


@proves("outbox.run-end")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("succeeded", None),
        ("canceled", None),
        ("failed", EngineError(kind="timeout", message="too slow", retryable=True)),
    ],
)
async def test_every_end_of_a_run_is_sent_once_to_each_subscribed_webhook(
    api: Api,
    worker: ManualWorker,
    database: Database,
    receiving: Receiver,
    sender: DeliverySender,
    effects: EffectRunner,
    status: FinishStatus,
    error: EngineError | None,
) -> None:
    await _made(api, url=receiving.url("/one"), kinds=["run_completed"])
    await _made(api, url=receiving.url("/two"))
    await _made(api, url=receiving.url("/notes"), kinds=["note"])
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    await turn.finish("All done.", status, error=error, effects=EFFECTS)
    await effects.run_due()
    # A worker that died here does it again.
    await database.execute("UPDATE effects SET status = 'pending', due_at = now() WHERE kind = 'delivery'")
    await effects.run_due()
    await sender.run_due()
    assert sorted(got.path for got in receiving.got) == ["/one", "/two"]
    event = receiving.got[0].event
    assert event["type"] == "run.completed"
    data = event["data"]
    assert (data["run_id"], data["thread_id"], data["agent_id"]) == (run_id, thread_id, "nova")
    assert (data["status"], data["text"], data["text_truncated"]) == (status, "All done.", False)
    assert data["error"] == (None if error is None else {"kind": "timeout", "message": "too slow"})
    assert (await api.http.get("/v1/deliveries")).json()["items"] == []


@proves("outbox.run-end")
async def test_the_end_of_a_run_that_was_canceled_before_it_began_is_sent_too(
    api: Api,
    database: Database,
    receiving: Receiver,
    sender: DeliverySender,
    effects: EffectRunner,
) -> None:
    await _made(api, url=receiving.url("/one"), kinds=["run_completed"])
    thread_id = await api.thread()
    canceled, withdrawn = await api.run(thread_id), await api.run(thread_id)
    assert (await api.http.post(f"/v1/runs/{canceled}/cancel")).status_code in {200, 202}
    assert (await api.http.delete(f"/v1/runs/{withdrawn}")).status_code in {200, 202, 204}
    await effects.run_due()
    await sender.run_due()
    assert sorted(got.event["data"]["run_id"] for got in receiving.got) == sorted([canceled, withdrawn])
    assert {got.event["data"]["status"] for got in receiving.got} == {"canceled"}


@proves("outbox.run-end")
async def test_an_end_without_a_subscriber_leaves_no_row(api: Api, worker: ManualWorker, database: Database) -> None:
    await _made(api, kinds=["note"])
    await _made(api, kinds=["run_completed"], agent_id="agent-builder")
    await _made(api, kinds=["run_completed"], enabled=False)
    thread_id = await api.thread()
    for status in ("succeeded", "failed"):
        await api.run(thread_id)
        await (await worker.claim(thread_id)).finish("done", status, effects=EFFECTS)
    await api.http.post(f"/v1/runs/{await api.run(thread_id)}/cancel")
    kinds = [row["kind"] for row in await database.fetch("SELECT kind FROM effects ORDER BY kind")]
    assert kinds == ["embeddings"]


async def test_a_long_answer_is_cut_in_the_delivery(
    api: Api,
    worker: ManualWorker,
    receiving: Receiver,
    sender: DeliverySender,
    effects: EffectRunner,
) -> None:
    await _made(api, url=receiving.url("/one"))
    thread_id = await api.thread()
    await api.run(thread_id)
    await (await worker.claim(thread_id)).finish("ä" * 100_000, effects=EFFECTS)
    await effects.run_due()
    await sender.run_due()
    data = receiving.got[0].event["data"]
    assert (len(data["text"]), data["text_truncated"]) == (16_000, True)
