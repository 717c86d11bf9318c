"""Triggers over HTTP: created, changed, read and fired on request."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from dirty_equals import IsPartialDict

from nova_workers.domain.triggers.sql.definitions import MAX_AGENT_TRIGGERS
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves

Json = dict[str, Any]

DAILY: Json = {"agent_id": "nova", "kind": "cron", "schedule": "30 9 * * MON-fri", "prompt": "Read the news."}


async def make(api: Api, **fields: Any) -> Json:
    answer = await api.http.post("/v1/triggers", json={**DAILY, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def change(api: Api, trigger_id: str, **fields: Any) -> Json:
    answer = await api.http.patch(f"/v1/triggers/{trigger_id}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def coming(api: Api, trigger_id: str, count: int = 3) -> list[datetime]:
    answer = await api.http.get(f"/v1/triggers/{trigger_id}/preview", params={"count": count})
    assert answer.status_code == 200, answer.text
    return [datetime.fromisoformat(firing["at"]) for firing in answer.json()["firings"]]


async def test_a_trigger_is_made_read_changed_and_deleted(api: Api) -> None:
    made = await make(api, timezone="Europe/Berlin", title=" News ")
    assert made == IsPartialDict(
        agent_id="nova",
        kind="cron",
        schedule="30 9 * * mon-fri",
        timezone="Europe/Berlin",
        prompt="Read the news.",
        title="News",
        enabled=True,
        thread_id=None,
        created_by="person",
    )
    path = f"/v1/triggers/{made['id']}"
    assert (await api.http.get(path)).json() == made
    changed = await change(api, made["id"], title=None, enabled=False, prompt="Read less.")
    assert (changed["title"], changed["enabled"], changed["prompt"]) == (None, False, "Read less.")
    assert changed["schedule"] == made["schedule"]
    assert (await api.http.delete(path)).status_code == 204
    for request in (api.http.get(path), api.http.delete(path), api.http.patch(path, json={"enabled": True})):
        assert (await request).status_code == 410
    assert (await api.http.get(f"{path}/preview")).status_code == 410
    assert (await api.http.get("/v1/triggers")).json()["items"] == []


async def test_triggers_are_listed_newest_first_page_by_page_and_by_agent(api: Api) -> None:
    made = [(await make(api, agent_id=agent))["id"] for agent in ("nova", "agent-builder", "nova")]
    first = (await api.http.get("/v1/triggers", params={"limit": 2})).json()
    rest = (await api.http.get("/v1/triggers", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [each["id"] for each in first["items"] + rest["items"]] == made[::-1]
    own = (await api.http.get("/v1/triggers", params={"agent_id": "nova"})).json()
    assert [each["id"] for each in own["items"]] == [made[2], made[0]]


async def test_the_next_firings_are_shown_in_the_triggers_own_zone(api: Api) -> None:
    made = await make(api, schedule="30 9 * * *", timezone="Asia/Kathmandu")
    answer = (await api.http.get(f"/v1/triggers/{made['id']}/preview", params={"count": 4})).json()
    assert (answer["timezone"], answer["enabled"], len(answer["firings"])) == ("Asia/Kathmandu", True, 4)
    assert all(firing["local"].endswith("T09:30:00+05:45") for firing in answer["firings"])
    assert all(firing["at"].endswith("T03:45:00Z") for firing in answer["firings"])
    moments = await coming(api, made["id"], 4)
    assert [two - one for one, two in pairwise(moments)] == [timedelta(days=1)] * 3


async def test_a_period_counts_from_the_start_or_from_when_the_trigger_was_made(api: Api) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    begun = await make(api, kind="every", schedule="0090", starts_at=start.isoformat())
    assert begun["schedule"] == "90"
    assert await coming(api, begun["id"], 2) == [start, start + timedelta(seconds=90)]
    plain = await make(api, kind="every", schedule="3600")
    assert (await coming(api, plain["id"], 1))[0] == datetime.fromisoformat(plain["created_at"]) + timedelta(hours=1)


async def test_one_time_fires_once_and_an_end_ends(api: Api) -> None:
    once = await make(api, kind="at", schedule="2090-05-01T09:00:00+02:00")
    assert once["schedule"] == "2090-05-01T07:00:00Z"
    assert await coming(api, once["id"]) == [datetime(2090, 5, 1, 7, tzinfo=UTC)]
    bounded = await make(
        api, schedule="0 0 1 1 *", starts_at="2090-01-01T00:00:00Z", ends_at="2091-01-01T00:00:00+00:00"
    )
    assert await coming(api, bounded["id"]) == [datetime(2090, 1, 1, tzinfo=UTC), datetime(2091, 1, 1, tzinfo=UTC)]


async def test_clock_changes_of_the_zone_are_respected(api: Api) -> None:
    made = await make(api, schedule="30 2 * * *", timezone="Europe/Berlin", starts_at="2027-03-27T12:00:00Z")
    answer = (await api.http.get(f"/v1/triggers/{made['id']}/preview", params={"count": 2})).json()
    assert [firing["local"] for firing in answer["firings"]] == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "often"}, "kind"),
        ({"schedule": ""}, "schedule"),
        ({"schedule": 5}, "schedule"),
        ({"schedule": "* * * *"}, "schedule"),
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"schedule": "0 0 30 2 *"}, "schedule"),
        ({"schedule": "@daily"}, "schedule"),
        ({"schedule": "0 0 * * * * 2030"}, "schedule"),
        ({"schedule": "* " * 101}, "schedule"),
        ({"kind": "every", "schedule": "59"}, "schedule"),
        ({"kind": "every", "schedule": "-60"}, "schedule"),
        ({"kind": "every", "schedule": "60.5"}, "schedule"),
        ({"kind": "every", "schedule": "1h"}, "schedule"),
        ({"kind": "every", "schedule": "99999999999"}, "schedule"),
        ({"kind": "at", "schedule": "2020-05-01T09:00:00Z"}, "schedule"),
        ({"kind": "at", "schedule": "2090-05-01T09:00:00"}, "schedule"),
        ({"kind": "at", "schedule": "2090-02-30T09:00:00Z"}, "schedule"),
        ({"kind": "at", "schedule": "tomorrow"}, "schedule"),
        ({"kind": "at", "schedule": "9999-12-31T23:59:59-12:00"}, "schedule"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "europe/Berlin"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"timezone": "Europe"}, "timezone"),
        ({"timezone": "localtime"}, "timezone"),
        ({"timezone": ""}, "timezone"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": "a\x00b"}, "prompt"),
        ({"prompt": "x" * 100_001}, "prompt"),
        ({"title": "x" * 201}, "title"),
        ({"enabled": "perhaps"}, "enabled"),
        ({"starts_at": "2090-01-01T00:00:00"}, "starts_at"),
        ({"starts_at": "1900-01-01T00:00:00Z"}, "starts_at"),
        ({"ends_at": "9999-12-31T23:59:59-12:00"}, "ends_at"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "schedule"),
        ({"starts_at": "2090-01-02T00:00:00Z", "ends_at": "2090-01-02T00:00:00Z"}, "ends_at"),
        ({"thread_id": "thr_nowhere"}, "thread_id"),
        ({"thread_id": "a b"}, "thread_id"),
        ({"agent_id": "Not A Slug"}, "agent_id"),
        ({"overlap": "never"}, "overlap"),
        ({"jitter_s": -1}, "jitter_s"),
        ({"jitter_s": 86_401}, "jitter_s"),
        ({"kind": "every", "schedule": "60", "jitter_s": 60}, "jitter_s"),
        ({"catchup": "all"}, "catchup"),
        ({"catchup_s": -1}, "catchup_s"),
        ({"catchup_s": 2**31}, "catchup_s"),
        ({"max_runs_per_day": 0}, "max_runs_per_day"),
        ({"max_cost_usd_per_day": 0}, "max_cost_usd_per_day"),
        ({"max_cost_usd_per_day": 1e300}, "max_cost_usd_per_day"),
        ({"pause_after_failures": -1}, "pause_after_failures"),
        ({"failures": 0}, "failures"),
        ({"next_fire_at": "2030-01-01T00:00:00Z"}, "next_fire_at"),
        ({"gate": {"kind": "mood"}}, "gate"),
        ({"gate": {"kind": "url", "url": "https://example.org", "expect_status": 100}}, "gate.url.expect_status"),
        ({"gate": {"kind": "url", "url": "https://example.org", "expect_status": 302}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "https://example.org:99999"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "https://[::1/"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "http://localhost/health"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "http://10.0.0.5/health"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "https://example.org:5432"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "https://me:secret@example.org"}}, "gate.url"),
        ({"gate": {"kind": "url", "url": "file:///etc/passwd"}}, "gate.url.url"),
        ({"gate": {"kind": "idle", "for_s": 0}}, "gate.idle.for_s"),
        ({"gate": {"kind": "open_tasks", "more": 1}}, "gate.open_tasks.more"),
    ],
)
@proves("triggers.form")
async def test_a_malformed_trigger_is_refused_by_field(api: Api, fields: Json, field: str) -> None:
    answer = await api.http.post("/v1/triggers", json={**DAILY, **fields})
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]], answer.text
    assert await api.count("triggers") == 0
    made = await make(api)
    assert (await api.http.patch(f"/v1/triggers/{made['id']}", json=fields)).status_code == 422
    assert (await api.http.get(f"/v1/triggers/{made['id']}")).json() == made


@pytest.mark.parametrize(
    "field",
    ["kind", "schedule", "timezone", "prompt", "enabled", "jitter_s", "overlap", "catchup", "pause_after_failures"],
)
async def test_required_fields_of_a_trigger_cannot_be_cleared(api: Api, field: str) -> None:
    made = await make(api)
    answer = await api.http.patch(f"/v1/triggers/{made['id']}", json={field: None})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


async def test_kind_and_schedule_are_checked_together(api: Api) -> None:
    made = await make(api)
    assert (await api.http.patch(f"/v1/triggers/{made['id']}", json={"kind": "every"})).status_code == 422
    assert (await change(api, made["id"], kind="every", schedule="600"))["schedule"] == "600"


async def test_a_past_time_cannot_be_enabled_again_but_may_be_renamed(api: Api, database: Database) -> None:
    made = await make(api, kind="at", schedule="2090-05-01T09:00:00Z")
    await database.execute("UPDATE triggers SET schedule = '2020-05-01T09:00:00Z'")
    assert (await change(api, made["id"], title="Past", enabled=False))["title"] == "Past"
    refused = await api.http.patch(f"/v1/triggers/{made['id']}", json={"enabled": True})
    assert refused.status_code == 422
    assert "never fires" in refused.json()["detail"]
    assert await coming(api, made["id"]) == []


async def test_a_fixed_thread_must_be_the_agents_and_exist(api: Api) -> None:
    own, other, gone = [await api.thread(agent_id=agent) for agent in ("nova", "agent-builder", "nova")]
    await api.http.delete(f"/v1/threads/{gone}")
    made = await make(api, thread_id=own)
    assert made["thread_id"] == own
    for thread_id in (other, gone):
        assert (await api.http.post("/v1/triggers", json={**DAILY, "thread_id": thread_id})).status_code == 422
        assert (await api.http.patch(f"/v1/triggers/{made['id']}", json={"thread_id": thread_id})).status_code == 422
    assert (await change(api, made["id"], thread_id=None))["thread_id"] is None


async def test_triggers_are_seen_by_their_tenant_only(api: Api, other_tenant: Tenant) -> None:
    made = await make(api)
    thread_id = await api.thread(agent_id="nova")
    path = f"/v1/triggers/{made['id']}"
    async with api.client(other_tenant.key) as stranger:
        assert (await stranger.get("/v1/triggers")).json()["items"] == []
        for request in (
            stranger.get(path),
            stranger.get(f"{path}/preview"),
            stranger.patch(path, json={"enabled": False}),
            stranger.delete(path),
        ):
            assert (await request).status_code == 404
        assert (await stranger.post("/v1/triggers", json={**DAILY, "thread_id": thread_id})).status_code == 422
    assert (await api.http.get(path)).json() == made


async def test_a_missing_agent_has_no_triggers(api: Api) -> None:
    assert (await api.http.post("/v1/triggers", json={**DAILY, "agent_id": "nobody"})).status_code == 404
    await api.http.delete("/v1/agents/agent-builder")
    assert (await api.http.post("/v1/triggers", json={**DAILY, "agent_id": "agent-builder"})).status_code == 410


async def test_an_agent_has_a_limit(api: Api, database: Database) -> None:
    await database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by) "
        "SELECT 'trg_' || lpad(n::text, 26, '0'), :tenant_id, 'nova', 'every', '60', 'p', 'person' "
        "FROM generate_series(1, :many::int) n",
        tenant_id=api.tenant.id,
        many=MAX_AGENT_TRIGGERS,
    )
    assert (await api.http.post("/v1/triggers", json=DAILY)).status_code == 409
    await make(api, agent_id="agent-builder")
    assert (await api.http.delete(f"/v1/triggers/trg_{'7'.zfill(26)}")).status_code == 204
    await make(api)


async def test_a_key_without_the_scope_is_refused(api: Api, database: Database) -> None:
    narrow = await make_tenant(database, scopes=["runs"], tenant_id=api.tenant.id)
    async with api.client(narrow.key) as caller:
        for path in ("/v1/triggers", "/v1/skills"):
            assert (await caller.get(path)).status_code == 403


async def test_limits_of_firing_are_set_and_cleared(api: Api) -> None:
    rules: Json = {
        "jitter_s": 300,
        "overlap": "cancel_other",
        "catchup_s": 60,
        "catchup": "each",
        "max_runs_per_day": 7,
        "max_cost_usd_per_day": 2.55,
        "pause_after_failures": 0,
        "gate": {"kind": "url", "url": "https://example.org/feed", "expect_status": 200, "changed": True},
    }
    made = await make(api, **rules)
    assert made == IsPartialDict(**rules, failures=0, paused_reason=None)
    occurrence, fires_at = (datetime.fromisoformat(made[name]) for name in ("next_slot_at", "next_fire_at"))
    assert timedelta() <= fires_at - occurrence < timedelta(seconds=300)
    assert await coming(api, made["id"], 1) == [fires_at]
    plain = await change(api, made["id"], max_runs_per_day=None, max_cost_usd_per_day=None, gate=None, jitter_s=0)
    assert (plain["max_runs_per_day"], plain["max_cost_usd_per_day"], plain["gate"]) == (None, None, None)
    assert plain["next_fire_at"] == plain["next_slot_at"] == made["next_slot_at"]
    assert (await change(api, made["id"], enabled=False))["next_fire_at"] is None


async def test_it_fires_by_hand_and_the_rows_are_listed_page_by_page(api: Api) -> None:
    made = await make(api, enabled=False, max_runs_per_day=3)
    path = f"/v1/triggers/{made['id']}"
    assert (await api.http.get(f"{path}/firings")).json()["items"] == []
    fired: list[Json] = []
    for _ in range(3):
        answer = await api.http.post(f"{path}/fire")
        assert answer.status_code == 201, answer.text
        fired.append(answer.json())
    assert fired[0] == IsPartialDict(trigger_id=made["id"], outcome="fired", manual=True, run_status="queued")
    run = (await api.http.get(f"/v1/runs/{fired[0]['run_id']}")).json()
    assert (run["source"], run["thread_id"], run["metadata"]["trigger_id"]) == (
        "trigger",
        fired[0]["thread_id"],
        made["id"],
    )
    first = (await api.http.get(f"{path}/firings", params={"limit": 2})).json()
    rest = (await api.http.get(f"{path}/firings", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [each["id"] for each in first["items"] + rest["items"]] == [each["id"] for each in fired[::-1]]
    assert rest["next_cursor"] is None
    refused = await api.http.post(f"{path}/fire")
    assert refused.status_code == 409
    assert "3 runs of the day" in refused.json()["detail"]


async def test_a_pause_is_seen_and_ended(api: Api, database: Database) -> None:
    made = await make(api)
    path = f"/v1/triggers/{made['id']}"
    await database.execute(
        "UPDATE triggers SET paused_reason = '5 runs in a row failed.', failures = 5, next_slot_at = NULL,"
        " next_fire_at = NULL"
    )
    paused = await change(api, made["id"], schedule="0 8 * * *", enabled=True)
    assert (paused["paused_reason"], paused["next_fire_at"]) == ("5 runs in a row failed.", None)
    resumed = (await api.http.post(f"{path}/resume")).json()
    assert (resumed["paused_reason"], resumed["failures"]) == (None, 0)
    assert resumed["next_fire_at"] == resumed["next_slot_at"] is not None
    assert (await api.http.post(f"{path}/resume")).json()["next_fire_at"] == resumed["next_fire_at"]


async def test_firing_and_its_rows_are_the_tenants_own(api: Api, other_tenant: Tenant) -> None:
    made = await make(api)
    path = f"/v1/triggers/{made['id']}"
    async with api.client(other_tenant.key) as stranger:
        for request in (
            stranger.post(f"{path}/fire"),
            stranger.post(f"{path}/resume"),
            stranger.get(f"{path}/firings"),
        ):
            assert (await request).status_code == 404
    await api.http.delete(path)
    for request in (api.http.post(f"{path}/fire"), api.http.post(f"{path}/resume"), api.http.get(f"{path}/firings")):
        assert (await request).status_code == 410
