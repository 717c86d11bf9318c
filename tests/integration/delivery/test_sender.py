"""The sender: attempts, pauses, crashes, and addresses that do not answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from nova_workers.base.config import RunSettings
from nova_workers.base.errors import DeliveryFailed, Unavailable
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.contracts.http.webhooks import WebhookPatch
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.sender import DeliverySender
from nova_workers.domain.delivery.rules.settling import pause_s
from nova_workers.domain.delivery.sql.leases import release_deliveries
from nova_workers.domain.delivery.sql.outbox import FailedAttempt, claim_deliveries, settle_delivered, settle_failed
from nova_workers.domain.runs.rules import work_leases
from nova_workers.domain.webhooks.sql.endpoints import delete_webhook
from tests.integration.delivery.conftest import DeliveryHarness
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, Fault, FaultInjectingDatabase, FaultInjector
from tests.support.waiting import pass_time, stays, until


@proves("outbox.backoff")
async def test_attempts_have_growing_pauses_up_to_a_limit(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = 500
    await deliveries.say()
    pauses = deliveries.settings.delivery.retry_s
    for attempt, pause in enumerate(pauses, 1):
        await deliveries.sender.run_due()
        (row,) = await deliveries.rows(made.webhook.id)
        assert (row["status"], row["attempts"], row["response_status"]) == ("pending", attempt, 500)
        assert pause * 0.99 - 1 <= row["due_in_s"] <= pause * 1.2
        # Before its time nothing is tried.
        await deliveries.sender.run_due()
        assert len(deliveries.receiver.got) == attempt
        await deliveries.pass_time(pause * 1.2 + 301)
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"]) == ("failed", len(pauses) + 1)
    assert row["error"] == "The address answered 500."
    assert len({got.id for got in deliveries.receiver.got}) == 1
    await deliveries.pass_time()
    assert await deliveries.sender.run_due() <= 1  # the notice of the webhook that was switched off
    assert len(deliveries.receiver.got) == len(pauses) + 1


def test_a_pause_has_jitter_and_respects_a_requested_delay_up_to_an_hour() -> None:
    assert pause_s((5, 300), 1, spread=0.0) == 5
    assert pause_s((5, 300), 2, spread=1.0) == 360
    assert pause_s((5, 300), 1, spread=0.0, asked_s=120) == 120
    assert pause_s((5, 300), 1, spread=0.0, asked_s=1) == 5
    assert pause_s((5, 300), 1, spread=0.0, asked_s=999_999) == 3_600


@proves("outbox.backoff")
async def test_a_receiver_may_request_a_longer_pause(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = "429 slow\r\nretry-after: 600"
    await deliveries.say()
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert 500 < row["due_in_s"] <= 600


@proves("outbox.at-least-once")
async def test_a_crash_before_the_outcome_is_written_delivers_again_under_one_id(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.say()
    faults = FaultInjector()
    faults.plan("crash_before", "delivered")
    dying = deliveries.another(database=FaultInjectingDatabase(deliveries.database, faults))
    with pytest.raises(Crashed):
        await dying.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    # During its lease no other sender takes it.
    assert await deliveries.sender.run_due() == 0
    await deliveries.pass_time(120)
    await deliveries.sender.run_due()
    first, second = deliveries.receiver.got
    assert first.id == second.id == row["id"]
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"]) == ("delivered", 2)


@proves("outbox.at-least-once")
@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
async def test_a_delivery_is_recorded_and_not_sent_again_although_the_database_was_briefly_unavailable(
    deliveries: DeliveryHarness, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(work_leases, "_SETTLE_PAUSE_S", 0.0)
    made = await deliveries.webhook()
    await deliveries.say()
    faults = FaultInjector()
    faults.plan(fault, "delivered")
    await deliveries.another(database=FaultInjectingDatabase(deliveries.database, faults)).run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"]) == ("delivered", 1)
    await deliveries.pass_time(120)
    await deliveries.sender.run_due()
    assert len(deliveries.receiver.got) == 1


@proves("outbox.at-least-once")
@pytest.mark.parametrize("statement", ["take_unrouted", "add", "claim", "failed", "count_failure"])
@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
async def test_a_crash_at_any_write_loses_nothing(deliveries: DeliveryHarness, fault: Fault, statement: str) -> None:
    await deliveries.webhook("/one")
    await deliveries.webhook("/two")
    for path in ("/one", "/two"):
        deliveries.receiver.answers[path] = lambda before: 500 if before == 0 else 204
    await deliveries.say()
    faults = FaultInjector()
    faults.plan(fault, statement)
    with pytest.raises(Crashed):
        await deliveries.another(database=FaultInjectingDatabase(deliveries.database, faults)).run_due()
    for _ in range(3):
        await deliveries.pass_time(400)
        await deliveries.sender.run_due()
    rows = await deliveries.rows()
    assert [row["status"] for row in rows] == ["delivered", "delivered"]
    assert len({row["target"] for row in rows}) == 2
    assert len({got.id for got in deliveries.receiver.got}) == 2


@proves("outbox.at-least-once")
async def test_a_late_answer_does_not_overwrite_a_later_attempt(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = lambda before: None if before == 0 else 204
    await deliveries.say()
    slow = asyncio.create_task(deliveries.sender.run_due())
    await until(lambda: len(deliveries.receiver.got) == 1)
    await deliveries.pass_time(120)
    await deliveries.another().run_due()
    await pass_time(61)
    await slow
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"], row["error"]) == ("delivered", 2, None)
    assert await deliveries.database.fetchval("SELECT failures FROM webhooks") == 0


@proves("outbox.at-least-once")
async def test_a_delivery_that_kills_its_worker_each_time_fails(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.say()
    await deliveries.route()
    most = len(deliveries.settings.delivery.retry_s) + 1
    await deliveries.database.execute(
        "UPDATE deliveries SET attempts = :attempts WHERE target = :target", attempts=most, target=made.webhook.id
    )
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert row["status"] == "failed"
    assert "lost" in row["error"]
    assert deliveries.receiver.got == []


_AN_ERROR = "SELECT max(error) FROM deliveries WHERE target = :target"


@proves("outbox.isolation")
async def test_an_address_that_never_answers_does_not_delay_others(deliveries: DeliveryHarness) -> None:
    dead = await deliveries.webhook("/dead", kinds=("notification",))
    deliveries.receiver.answers["/dead"] = None
    for number in range(8):
        await deliveries.say(f"to the dead one {number}")
    await deliveries.route()
    await deliveries.webhook("/alive")
    for number in range(30):
        await deliveries.say(f"{number}", run_id=f"run_{number}")
    sending = asyncio.create_task(deliveries.sender.run_due())
    # All of it, while the first tries of the dead one still wait for an answer.
    await until(lambda: len(deliveries.receiver.at("/alive")) == 30)
    assert not sending.done()
    per_target = deliveries.settings.delivery.at_once_per_target
    assert len(deliveries.receiver.at("/dead")) == per_target
    await pass_time(61)
    error = await until(lambda: deliveries.database.fetchval(_AN_ERROR, target=dead.webhook.id))
    assert "did not answer" in error
    deliveries.sender.drain()
    await sending
    assert deliveries.receiver.most_at_once["/dead"] <= per_target
    assert deliveries.receiver.most_at_once["/alive"] <= per_target
    rows = await deliveries.rows(dead.webhook.id)
    assert {row["status"] for row in rows} == {"pending"}


@proves("outbox.isolation")
async def test_an_address_that_fails_rests_and_is_tried_one_at_a_time(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = 503
    for number in range(10):
        await deliveries.say(f"{number}")
    await deliveries.sender.run_due()
    rest_after = deliveries.settings.delivery.rest_after_failures
    tried = len(deliveries.receiver.got)
    assert rest_after <= tried <= rest_after + deliveries.settings.delivery.at_once_per_target
    await deliveries.database.execute("UPDATE webhooks SET rests_until = now()")
    await deliveries.sender.run_due()
    assert len(deliveries.receiver.got) == tried + 1
    # After one success it is healthy, and gets the rest.
    deliveries.receiver.answers["/hook"] = 204
    await deliveries.pass_time(400)
    await deliveries.sender.run_due()
    assert {row["status"] for row in await deliveries.rows(made.webhook.id)} == {"delivered"}
    state = await deliveries.database.fetchrow("SELECT failures, failing_since, rests_until FROM webhooks")
    assert state is not None
    assert tuple(state) == (0, None, None)


@proves("outbox.once-at-a-time")
async def test_concurrent_senders_send_each_delivery_once(deliveries: DeliveryHarness) -> None:
    await deliveries.webhook("/one")
    await deliveries.webhook("/two")
    for number in range(40):
        await deliveries.say(f"{number}", run_id=f"run_{number}")
    await asyncio.gather(*(deliveries.another().run_due() for _ in range(5)))
    assert len(deliveries.receiver.got) == 80
    assert len({got.id for got in deliveries.receiver.got}) == 80
    assert {row["status"] for row in await deliveries.rows()} == {"delivered"}


async def test_concurrent_attempts_of_a_process_are_bounded_for_any_number_of_doorbells(
    deliveries: DeliveryHarness,
) -> None:
    settings = deliveries.settings.delivery.model_copy(update={"at_once": 3, "at_once_per_target": 2})
    sender = deliveries.another(settings=deliveries.settings.model_copy(update={"delivery": settings}))
    # Three at once for two addresses: one of them gets two.
    for path in ("/one", "/two"):
        await deliveries.webhook(path)
        deliveries.receiver.answers[path] = None
    for number in range(5):
        await deliveries.say(f"{number}")
    rounds = [asyncio.create_task(sender.run_due()) for _ in range(4)]
    await until(lambda: deliveries.receiver.most_together == 3)
    await stays(lambda: deliveries.receiver.most_together == 3, for_s=0.2)
    sender.drain()
    await asyncio.gather(*rounds)
    assert max(deliveries.receiver.most_at_once.values()) == 2


@proves("outbox.drain")
async def test_a_sender_that_stops_releases_what_it_has_not_sent(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = None
    await deliveries.say()
    sending = asyncio.create_task(deliveries.sender.run_due())
    await until(lambda: bool(deliveries.receiver.got))
    deliveries.sender.drain()
    await sending
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"], row["error"]) == ("pending", 0, None)
    assert row["due_in_s"] <= 0
    assert await deliveries.sender.run_due() == 0
    deliveries.receiver.answers["/hook"] = 204
    await deliveries.another().run_due()
    assert (await deliveries.rows(made.webhook.id))[0]["status"] == "delivered"


@proves("effects.leased")
async def test_a_delivery_that_takes_longer_than_its_lease_is_not_taken_over_while_its_sender_lives(
    deliveries: DeliveryHarness,
) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = None
    await deliveries.say()
    leases = RunSettings(lease_ttl_s=30, lease_renew_s=0.05)
    patient = deliveries.another(settings=deliveries.settings.model_copy(update={"runs": leases}))
    sending = asyncio.create_task(patient.run_due())
    await until(lambda: bool(deliveries.receiver.got))
    # Its lease ends soon, as one that is not renewed would.
    await deliveries.pass_time(9)
    await until(lambda: _is_leased(deliveries, made.webhook.id, for_s=25))
    assert await deliveries.sender.run_due() == 0
    patient.drain()
    await sending
    assert len(deliveries.receiver.got) == 1


@proves("effects.leased")
async def test_the_lease_of_an_attempt_is_renewed_although_no_more_could_be_claimed(
    deliveries: DeliveryHarness,
) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = None
    await deliveries.say()
    faults = FaultInjector()
    faults.plan("refuse", "claim", nth=2)
    sender = deliveries.another(
        settings=deliveries.settings.model_copy(update={"runs": RunSettings(lease_ttl_s=30, lease_renew_s=0.05)}),
        database=FaultInjectingDatabase(deliveries.database, faults),
    )
    sending = asyncio.create_task(sender.run_due())
    await until(lambda: bool(deliveries.receiver.got))
    # The claim that is refused follows the first renewal.
    for _ in range(2):
        await deliveries.pass_time(9)
        await until(lambda: _is_leased(deliveries, made.webhook.id, for_s=25))
    assert not sending.done()
    sender.drain()
    with pytest.raises(Unavailable):
        await sending
    assert len(deliveries.receiver.got) == 1


async def _is_leased(deliveries: DeliveryHarness, webhook_id: str, *, for_s: float) -> bool:
    (row,) = await deliveries.rows(webhook_id)
    return row["due_in_s"] > for_s


@proves("webhooks.disabled")
async def test_a_webhook_that_fails_for_a_day_is_disabled_with_one_message_to_the_inbox(
    deliveries: DeliveryHarness,
) -> None:
    made = await deliveries.webhook()
    other = await deliveries.webhook("/other")
    deliveries.receiver.answers["/hook"] = 500
    for number in range(20):
        await deliveries.say(f"{number}", run_id=f"run_{number}")
    # However many attempts fail, a short outage disables nothing.
    for _ in range(20):
        await deliveries.pass_time(400)
        await deliveries.sender.run_due()
    state = await deliveries.webhooks.patch(deliveries.tenant_id, made.webhook.id, WebhookPatch(description="still on"))
    assert state.enabled
    assert state.failures >= deliveries.settings.delivery.disable_after_failures
    await deliveries.pass_time(deliveries.settings.delivery.disable_after_s)
    await deliveries.sender.run_due()
    state = await deliveries.webhooks.patch(deliveries.tenant_id, made.webhook.id, WebhookPatch(description="off"))
    assert not state.enabled
    assert "tries in a row failed since" in (state.disabled_reason or "")
    assert "answered 500" in (state.disabled_reason or "")
    notices = [words for words in await deliveries.inbox() if "switched off" in words]
    assert len(notices) == 1
    assert made.webhook.id in notices[0]
    # Pending deliveries are kept, but not sent, until the webhook is enabled.
    tried = len(deliveries.receiver.at("/hook"))
    await deliveries.pass_time()
    await deliveries.sender.run_due()
    assert len(deliveries.receiver.at("/hook")) == tried
    assert any("switched off" in got.event["data"]["text"] for got in deliveries.receiver.at("/other"))
    assert other.webhook.enabled
    deliveries.receiver.answers["/hook"] = 204
    state = await deliveries.webhooks.patch(deliveries.tenant_id, made.webhook.id, WebhookPatch(enabled=True))
    assert (state.failures, state.failing_since, state.disabled_reason) == (0, None, None)
    await deliveries.sender.run_due()
    assert "pending" not in {row["status"] for row in await deliveries.rows(made.webhook.id)}


@proves("webhooks.disabled")
async def test_a_webhook_that_answers_gone_is_disabled_at_once(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = 410
    await deliveries.say()
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["response_status"], row["attempts"]) == ("failed", 410, 1)
    assert await deliveries.database.fetchval("SELECT enabled FROM webhooks") is False
    assert "wants nothing any more" in (await deliveries.inbox())[-1]


async def test_pending_deliveries_of_a_deleted_webhook_fail(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    deliveries.receiver.answers["/hook"] = 500
    await deliveries.say()
    await deliveries.sender.run_due()
    async with deliveries.database.connection() as connection:
        await delete_webhook(connection, deliveries.tenant_id, made.webhook.id)
    await deliveries.pass_time()
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["error"]) == ("failed", "The webhook was deleted.")
    assert len(deliveries.receiver.got) == 1


class ThirdPartyChannel:
    """A third-party channel."""

    def __init__(self, name: str, fails: Exception | None = None) -> None:
        self.name = name
        self.fails = fails
        self.got: list[DeliveryItem] = []

    async def deliver(self, item: DeliveryItem) -> None:
        self.got.append(item)
        if self.fails is not None:
            raise self.fails

    async def close(self) -> None:
        pass


def _with(
    deliveries: DeliveryHarness, *channels: ThirdPartyChannel, by_agent: dict[str, tuple[str, ...]]
) -> DeliverySender:
    return deliveries.another(ChannelRoutes(channels, by_agent))


@proves("outbox.channels")
async def test_an_agent_has_its_configured_channels(deliveries: DeliveryHarness) -> None:
    bot, mail = ThirdPartyChannel("bot"), ThirdPartyChannel("mail")
    sender = _with(deliveries, bot, mail, by_agent={"*": ("mail",), "nova": ("bot", "mail"), "quiet": ()})
    await deliveries.say("from nova")
    await deliveries.say("from another", agent_id="other")
    await deliveries.say("from a quiet one", agent_id="quiet")
    await sender.run_due()
    assert [item.payload["text"] for item in bot.got] == ["from nova"]
    assert sorted(item.payload["text"] for item in mail.got) == ["from another", "from nova"]
    assert {(row["target"], row["status"], row["response_status"]) for row in await deliveries.rows()} == {
        ("bot", "delivered", None),
        ("mail", "delivered", None),
    }


@proves("outbox.channels")
async def test_a_channel_decides_about_retries_and_a_defect_is_retried(
    deliveries: DeliveryHarness,
) -> None:
    never = ThirdPartyChannel("never", DeliveryFailed("no such chat", retryable=False))
    later = ThirdPartyChannel("later", DeliveryFailed("busy", retryable=True))
    broken = ThirdPartyChannel("broken", KeyError("a bug"))
    await deliveries.say()
    await _with(deliveries, never, later, broken, by_agent={"*": ("never", "later", "broken")}).run_due()
    rows = {row["target"]: (row["status"], row["attempts"], row["error"]) for row in await deliveries.rows()}
    assert rows == {
        "never": ("failed", 1, "no such chat"),
        "later": ("pending", 1, "busy"),
        "broken": ("pending", 1, "KeyError: 'a bug'"),
    }


async def test_deliveries_wait_for_a_process_that_has_their_channel(deliveries: DeliveryHarness) -> None:
    bot = ThirdPartyChannel("bot")
    await deliveries.say()
    await deliveries.route(ChannelRoutes([bot], {"*": ("bot",)}))
    assert await deliveries.sender.run_due() == 0
    assert [row["status"] for row in await deliveries.rows()] == ["pending"]
    await _with(deliveries, bot, by_agent={}).run_due()
    assert len(bot.got) == 1


async def test_a_claim_costs_one_step_per_target_whatever_their_lengths(deliveries: DeliveryHarness) -> None:
    hooks = [(await deliveries.webhook(f"/{number}")).webhook.id for number in range(3)]
    await deliveries.database.execute(
        "INSERT INTO deliveries (id, tenant_id, kind, target, webhook_id, payload, due_at)"
        " SELECT 'dlv_' || h || n, :tenant_id, 'notification', h, h, '{}', now() + CASE WHEN n > 5 THEN interval '1 h'"
        " ELSE interval '0' END FROM unnest(:hooks::text[]) h, generate_series(1, 3000) n",
        tenant_id=deliveries.tenant_id,
        hooks=hooks,
    )
    async with deliveries.database.connection() as connection:
        claimed = await claim_deliveries(
            connection,
            active_attempts={hooks[0]: 4, hooks[1]: 3},
            per_lane=4,
            rest_after=3,
            channels=(),
            webhooks=True,
            limit=10,
            lease=timedelta(seconds=60),
        )
    assert sorted(item.target for item in claimed) == sorted([hooks[1], *[hooks[2]] * 4])


@proves("effects.leased")
async def test_a_late_write_of_a_released_attempt_changes_nothing(deliveries: DeliveryHarness) -> None:
    await deliveries.webhook()
    await deliveries.say()
    await deliveries.route()
    lease = timedelta(seconds=30)
    async with deliveries.database.connection() as connection:

        async def claim() -> DeliveryItem:
            (item,) = await claim_deliveries(
                connection,
                active_attempts={},
                per_lane=1,
                rest_after=5,
                channels=(),
                webhooks=True,
                limit=1,
                lease=lease,
            )
            return item

        first = await claim()
        await release_deliveries(connection, [first])
        second = await claim()
        assert (first.attempt, second.attempt) == (1, 1)
        await release_deliveries(connection, [first])
        assert not await settle_failed(connection, first, FailedAttempt("late", final=True))
        assert not await settle_delivered(connection, first, 200)
        assert await settle_delivered(connection, second, 200)
