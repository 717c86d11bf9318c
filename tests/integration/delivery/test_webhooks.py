"""Webhooks: the events they receive, and the signatures."""

from __future__ import annotations

import time

import pytest
from dirty_equals import IsPartialDict, IsStr

from nova_workers.base.errors import Conflict, DeliveryFailed, IllegalTransition, InvalidInput, NotFound
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.deliveries import DeliveryItem, Sender
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch
from nova_workers.domain.audit.rules import AuditSeals
from nova_workers.domain.audit.sql.listing import get_audit_chain
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.from_agents import notify
from nova_workers.domain.delivery.rules.webhooks import WebhookChannel
from nova_workers.domain.delivery.sql.targets import list_waiting_targets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.webhooks.rules.service import Webhooks
from nova_workers.domain.webhooks.sql.endpoints import get_webhook
from nova_workers.domain.webhooks.sql.signing_secrets import fetch_endpoint
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.work import Work
from tests.integration.delivery.conftest import DeliveryHarness
from tests.requirements import proves
from tests.support.servers.webhook_receiver import signed_by


@proves("webhooks.signed")
async def test_a_notification_is_signed_by_the_standard(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.say("The build is red")
    assert await deliveries.sender.run_due()
    (got,) = deliveries.receiver.got
    assert signed_by(made.secret, got)
    assert not signed_by("whsec_" + "A" * 44, got)
    (row,) = await deliveries.rows()
    assert got.id == row["id"]
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
    assert got.headers["content-type"] == "application/json"
    assert got.event["type"] == "agent.notification"
    assert got.event["data"] == {
        "delivery_id": row["id"],
        "agent_id": "nova",
        "thread_id": "thr_1",
        "run_id": "run_1",
        "text": "The build is red",
    }
    assert (row["status"], row["response_status"], row["attempts"], row["error"]) == ("delivered", 204, 1, None)
    # The inbox keeps its item, and a routed item is not routed again.
    assert await deliveries.inbox() == ["The build is red"]
    assert await deliveries.sender.run_due() == 0


@proves("audit.webhook")
async def test_changes_of_a_transaction_reach_a_webhook_of_the_audit_log_in_batches(
    deliveries: DeliveryHarness,
) -> None:
    hook = await deliveries.webhook("/log", kinds=("audit_recorded",), may_audit=True)
    await deliveries.webhook("/all")
    with acting_as(Actor("key", "key_1", deliveries.tenant_id, address="192.0.2.7")):
        await deliveries.database.execute(
            "INSERT INTO notes (id, tenant_id, agent_id, title)"
            " SELECT 'note_' || n, :tenant_id, 'nova', 'private words' FROM generate_series(1, 250) n",
            tenant_id=deliveries.tenant_id,
        )
        await deliveries.database.execute("DELETE FROM notes WHERE id = 'note_7'")
    await deliveries.database.execute("UPDATE notes SET title = 'by the fleet'")
    assert [len(row["payload"]["ids"]) for row in await deliveries.rows(hook.webhook.id)] == [100, 100, 50, 1]
    while await deliveries.sender.run_due():
        await deliveries.pass_time()
    got = [one.event for one in deliveries.receiver.got]
    assert {(event["type"], event["data"]["agent_id"]) for event in got} == {("audit.recorded", None)}
    assert {one.path for one in deliveries.receiver.got} == {"/log"}
    records = [record for event in got for record in event["data"]["records"]]
    assert "private words" not in str(records)
    found = sorted((record["action"], record["target_id"]) for record in records)
    assert found == sorted([*(("note.created", f"note_{n}") for n in range(1, 251)), ("note.deleted", "note_7")])
    assert {(record["actor_id"], record["address"]) for record in records} == {("key_1", "192.0.2.7")}
    # Neither sending nor what became of it is a change of an actor.
    assert await deliveries.database.fetchval("SELECT count(*) FROM audit_events") == 251


@proves("audit.head")
async def test_the_head_of_the_chain_reaches_a_webhook_of_the_audit_log(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook("/log", kinds=("audit_recorded",), may_audit=True)
    await deliveries.webhook("/all")
    database = deliveries.database
    with acting_as(Actor("key", "key_1", deliveries.tenant_id)):
        await database.execute("UPDATE tenants SET weight = 2 WHERE id = :id", id=deliveries.tenant_id)
    assert await AuditSeals(database).tick() == 1
    assert await AuditSeals(database).tick() == 0
    while await deliveries.sender.run_due():
        await deliveries.pass_time()
    heads = [got for got in deliveries.receiver.got if got.event["type"] == "audit.sealed"]
    assert [(got.path, signed_by(made.secret, got)) for got in heads] == [("/log", True)]
    async with database.connection() as connection:
        chain = await get_audit_chain(connection, deliveries.tenant_id)
    assert heads[0].event["data"] == IsPartialDict(seq=1, hash=chain.hash, sealed_at=IsStr())


@proves("webhooks.wanted")
async def test_a_webhook_gets_only_the_kinds_that_it_subscribed_to(deliveries: DeliveryHarness) -> None:
    await deliveries.webhook("/all")
    await deliveries.webhook("/notes", kinds=("note", "run_completed"))
    await deliveries.webhook("/nova", agent_id="nova")
    await deliveries.webhook("/off", enabled=False)
    await deliveries.say("from nova")
    await deliveries.say("from another", agent_id="other")
    await deliveries.sender.run_due()
    assert sorted((got.path, got.event["data"]["text"]) for got in deliveries.receiver.got) == [
        ("/all", "from another"),
        ("/all", "from nova"),
        ("/nova", "from nova"),
    ]


@proves("webhooks.tenants")
async def test_a_webhook_gets_nothing_of_another_tenant(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.database.execute("INSERT INTO tenants (id, name) VALUES ('ten_b', 'b')")
    await notify(Work(deliveries.database), Sender("ten_b", "nova", "thr_2", "run_2"), "a secret")
    await deliveries.sender.run_due()
    assert deliveries.receiver.got == []
    for act in (
        deliveries.webhooks.test("ten_b", made.webhook.id),
        deliveries.webhooks.rotate("ten_b", made.webhook.id, grace_s=0),
        deliveries.webhooks.patch("ten_b", made.webhook.id, WebhookPatch(enabled=False)),
    ):
        with pytest.raises(NotFound):
            await act
    await deliveries.say()
    await deliveries.sender.run_due()
    with pytest.raises(NotFound):
        await deliveries.webhooks.replay("ten_b", (await deliveries.rows())[0]["id"])


@proves("webhooks.rotation")
async def test_both_secrets_sign_until_the_grace_ends(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    rotated = await deliveries.webhooks.rotate(deliveries.tenant_id, made.webhook.id, grace_s=3600)
    assert rotated.secret != made.secret
    assert rotated.webhook.previous_expires_at is not None
    await deliveries.say("one")
    await deliveries.sender.run_due()
    (got,) = deliveries.receiver.got
    assert signed_by(made.secret, got)
    assert signed_by(rotated.secret, got)
    await deliveries.pass_time(3601)
    await deliveries.say("two")
    await deliveries.sender.run_due()
    assert not signed_by(made.secret, deliveries.receiver.got[-1])
    assert signed_by(rotated.secret, deliveries.receiver.got[-1])
    # Without a grace the old one ends at once.
    last = await deliveries.webhooks.rotate(deliveries.tenant_id, made.webhook.id, grace_s=0)
    assert last.webhook.previous_expires_at is None
    await deliveries.say("three")
    await deliveries.sender.run_due()
    assert not signed_by(rotated.secret, deliveries.receiver.got[-1])
    assert signed_by(last.secret, deliveries.receiver.got[-1])


@proves("webhooks.at-rest")
async def test_a_secret_is_encrypted_and_decrypted_in_its_own_row_only(deliveries: DeliveryHarness) -> None:
    one, two = await deliveries.webhook("/one"), await deliveries.webhook("/two")
    await deliveries.webhooks.rotate(deliveries.tenant_id, one.webhook.id, grace_s=60)
    table = str([dict(row) for row in await deliveries.database.fetch("SELECT * FROM webhooks")])
    assert one.secret.removeprefix("whsec_") not in table
    assert "whsec_" not in table
    await deliveries.database.execute(
        "UPDATE webhooks SET secret = (SELECT secret FROM webhooks WHERE id = :other_id) WHERE id = :webhook_id",
        other_id=two.webhook.id,
        webhook_id=one.webhook.id,
    )
    await deliveries.say()
    await deliveries.sender.run_due()
    assert [got.path for got in deliveries.receiver.got] == ["/two"]
    (row,) = await deliveries.rows(one.webhook.id)
    assert "cannot be opened" in row["error"]
    # It is no failure of the address.
    assert (
        await deliveries.database.fetchval(
            "SELECT failures FROM webhooks WHERE id = :webhook_id", webhook_id=one.webhook.id
        )
        == 0
    )


@proves("webhooks.at-rest")
async def test_without_a_master_key_a_webhook_is_refused_with_the_reason(deliveries: DeliveryHarness) -> None:
    keyless = Webhooks(Work(deliveries.database), Vault([]), allow_hosts=(deliveries.receiver.host,))
    with pytest.raises(Conflict, match="NOVA_SECRETS__KEYS"):
        await keyless.create(deliveries.tenant_id, WebhookCreate(url=deliveries.receiver.url()))
    assert await deliveries.database.fetchval("SELECT count(*) FROM webhooks") == 0


@proves("webhooks.at-rest")
async def test_webhooks_are_encrypted_under_a_new_master_key_and_still_sign(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    rotated = await deliveries.webhooks.rotate(deliveries.tenant_id, made.webhook.id, grace_s=3600)
    old, new = ("k1", bytes(range(32))), ("k2", bytes(range(1, 33)))
    done = await Webhooks(Work(deliveries.database), Vault([new, old])).reseal()
    assert (done.key_id, done.rotated, done.remaining, done.unreadable) == ("k2", 1, 0, 0)
    alone = Webhooks(Work(deliveries.database), Vault([new]))
    async with deliveries.database.connection() as connection:
        endpoint = await fetch_endpoint(connection, deliveries.tenant_id, made.webhook.id)
    assert endpoint is not None
    assert alone.keys(endpoint) == (rotated.secret, made.secret)


@proves("webhooks.guarded")
@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "https://10.0.0.8/hook",
        "https://169.254.169.254/latest",
        "https://[::1]/hook",
        "https://localhost/hook",
        "https://user:pass@example.com/",
        "https://example.com/#part",
        "https://exa mple.com/",
        "https:///hook",
        "https://example.com:99999/",
        "ftp://example.com/",
        "hook",
    ],
)
async def test_an_internal_or_plain_http_url_is_refused(deliveries: DeliveryHarness, url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await deliveries.webhooks.create(deliveries.tenant_id, WebhookCreate(url=url))
    assert refused.value.fields["field"] == "url"
    assert await deliveries.database.fetchval("SELECT count(*) FROM webhooks") == 0


@proves("webhooks.guarded")
@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00::1", "::ffff:127.0.0.1"])
async def test_a_host_name_that_resolves_to_an_internal_address_is_refused_at_each_attempt(
    deliveries: DeliveryHarness, address: str
) -> None:
    async def inside(_host: str, _port: int) -> list[str]:
        return [address]

    made = await deliveries.webhooks.create(deliveries.tenant_id, WebhookCreate(url="https://hooks.example.com/nova"))
    outbound = Outbound(OutboundRules(), resolver=inside)
    channel = WebhookChannel(deliveries.database, deliveries.webhooks, outbound, max_body_bytes=10_000)
    await deliveries.say()
    await deliveries.another(ChannelRoutes([channel], {"*": ("webhooks",)})).run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["attempts"], row["response_status"]) == ("failed", 1, None)
    assert "not an address of the public internet" in row["error"]
    assert address not in row["error"]


@proves("webhooks.guarded")
async def test_a_host_is_refused_once_it_is_no_longer_allowed(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.say()
    strict = deliveries.settings.delivery.model_copy(update={"webhook_allow_hosts": ()})
    await deliveries.another(settings=deliveries.settings.model_copy(update={"delivery": strict})).run_due()
    (row,) = await deliveries.rows(made.webhook.id)
    assert row["status"] == "failed"
    assert deliveries.receiver.got == []


@proves("webhooks.guarded")
async def test_a_redirect_is_not_followed(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook("/moved")
    deliveries.receiver.answers["/moved"] = f"302 Found\r\nlocation: {deliveries.receiver.url('/elsewhere')}"
    await deliveries.say()
    await deliveries.sender.run_due()
    assert [got.path for got in deliveries.receiver.got] == ["/moved"]
    (row,) = await deliveries.rows(made.webhook.id)
    assert (row["status"], row["response_status"]) == ("pending", 302)
    assert "no redirect" in row["error"]


@proves("webhooks.retry")
async def test_what_waits_after_failures_is_named_with_the_reason_and_sent_at_once_on_request(
    deliveries: DeliveryHarness,
) -> None:
    made, tenant_id = await deliveries.webhook(), deliveries.tenant_id
    deliveries.receiver.answers["/hook"] = lambda before: 500 if before < 3 else 204
    for text in ("One", "Two", "Three"):
        await deliveries.say(text)
        await deliveries.sender.run_due()
    assert len(deliveries.receiver.got) == 3
    async with deliveries.database.connection() as connection:
        (target,) = await list_waiting_targets(connection, tenant_id)
        assert (target.target, target.webhook_id, target.waiting) == (made.webhook.id, made.webhook.id, 3)
        assert target.error == "The address answered 500."
        rests_until = (await get_webhook(connection, tenant_id, made.webhook.id)).rests_until
        assert rests_until is not None
        assert rests_until <= target.next_try_at
        assert await list_waiting_targets(connection, "ten_b") == []
    # One alone, which ends the rest; then all.
    first = (await deliveries.rows())[0]["id"]
    assert (await deliveries.webhooks.replay(tenant_id, first)).attempts == 1
    await deliveries.sender.run_due()
    assert len(deliveries.receiver.got) == 4
    await deliveries.webhooks.retry(tenant_id, made.webhook.id)
    await deliveries.sender.run_due()
    assert [row["status"] for row in await deliveries.rows()] == ["delivered"] * 3
    async with deliveries.database.connection() as connection:
        assert await list_waiting_targets(connection, tenant_id) == []


@proves("webhooks.retry")
async def test_a_channel_is_tried_at_once_and_another_tenants_is_not_found(deliveries: DeliveryHarness) -> None:
    pager = FailingChannel()
    sender = deliveries.another(ChannelRoutes([pager], {"*": ["pager"]}))
    await deliveries.say()
    await sender.run_due()
    async with deliveries.database.connection() as connection:
        (target,) = await list_waiting_targets(connection, deliveries.tenant_id)
    assert (target.target, target.webhook_id, target.error) == ("pager", None, "No carrier.")
    with pytest.raises(NotFound):
        await deliveries.webhooks.retry("ten_b", "pager")
    await sender.run_due()
    assert pager.tries == 1
    await deliveries.webhooks.retry(deliveries.tenant_id, "pager")
    await sender.run_due()
    assert pager.tries == 2


class FailingChannel:
    """A channel that delivers nothing."""

    name = "pager"
    tries = 0

    async def deliver(self, item: DeliveryItem) -> None:
        self.tries += 1
        raise DeliveryFailed("No carrier.", retryable=True)

    async def close(self) -> None:
        pass


@proves("webhooks.replay")
async def test_a_delivery_is_replayed_under_its_id(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook()
    await deliveries.say()
    await deliveries.sender.run_due()
    (row,) = await deliveries.rows()
    again = await deliveries.webhooks.replay(deliveries.tenant_id, row["id"])
    assert (again.id, again.status, again.attempts, again.delivered_at) == (row["id"], "pending", 0, None)
    with pytest.raises(IllegalTransition, match="on its way"):
        await deliveries.webhooks.replay(deliveries.tenant_id, row["id"])
    await deliveries.sender.run_due()
    first, second = deliveries.receiver.got
    assert (first.id, first.body) == (second.id, second.body)
    assert signed_by(made.secret, second)
    inbox_id = await deliveries.database.fetchval("SELECT id FROM deliveries WHERE target = 'user'")
    with pytest.raises(IllegalTransition, match="inbox"):
        await deliveries.webhooks.replay(deliveries.tenant_id, inbox_id)
    await deliveries.webhooks.patch(deliveries.tenant_id, made.webhook.id, WebhookPatch(enabled=False))
    with pytest.raises(Conflict, match="switched off"):
        await deliveries.webhooks.replay(deliveries.tenant_id, row["id"])
    with pytest.raises(Conflict, match="switched off"):
        await deliveries.webhooks.test(deliveries.tenant_id, made.webhook.id)


async def test_a_test_delivery_goes_only_to_its_webhook(deliveries: DeliveryHarness) -> None:
    made = await deliveries.webhook("/one", kinds=("note",))
    await deliveries.webhook("/two")
    delivery = await deliveries.webhooks.test(deliveries.tenant_id, made.webhook.id)
    assert (delivery.kind, delivery.status, delivery.webhook_id) == ("test", "pending", made.webhook.id)
    await deliveries.sender.run_due()
    (got,) = deliveries.receiver.got
    assert (got.path, got.id, got.event["type"]) == ("/one", delivery.id, "webhook.test")
    assert await deliveries.inbox() == []
