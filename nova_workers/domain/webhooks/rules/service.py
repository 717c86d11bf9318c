"""Webhooks of a tenant: validation of their addresses, and the secrets that sign deliveries."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import structlog

from nova_workers.base.errors import Conflict, Forbidden, InvalidInput, existing
from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import DeliveryKind, DeliveryView, NewDelivery
from nova_workers.contracts.http.secrets import SecretRotation
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch, WebhookSecret, WebhookView
from nova_workers.domain.agents.sql.records import get_agent
from nova_workers.domain.delivery.sql.deliveries import get_delivery, replay_delivery
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.delivery.sql.targets import end_rest, is_known_target, retry_deliveries
from nova_workers.domain.secrets.rules.vault import Sealed, Vault
from nova_workers.domain.webhooks.rules.addresses import check_delivery_url
from nova_workers.domain.webhooks.rules.standard_webhooks import new_secret
from nova_workers.domain.webhooks.sql import endpoints as ledger
from nova_workers.domain.webhooks.sql import signing_secrets as webhook_secrets
from nova_workers.domain.webhooks.sql.endpoints import NewWebhook
from nova_workers.domain.webhooks.sql.signing_secrets import Endpoint, SecretColumns
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_BATCH = 200
_AUDIT: DeliveryKind = "audit_recorded"
_WEBHOOK_ID = "whk_"
"""The beginning of a target that is a webhook."""
_TEST_WORDS = "This is a test. Nothing happened."


class Webhooks:
    """The rules of webhooks, for changes and for sending."""

    def __init__(self, work: Work, vault: Vault, *, allow_hosts: Collection[str] = ()) -> None:
        """Keep the dependencies.

        Args:
            work: Begins units of work.
            vault: Encrypts and decrypts their secrets.
            allow_hosts: ``host`` or ``host:port`` that the operator allows, which need neither be public nor use TLS.
        """
        self._work = work
        self._vault = vault
        self._allow_hosts = frozenset(allow_hosts)

    async def create(self, tenant_id: str, given: WebhookCreate, *, may_audit: bool = False) -> WebhookSecret:
        """Create a webhook. Its secret is in this answer only.

        Args:
            given: Its settings.
            may_audit: Whether the author may read the audit log.

        Raises:
            InvalidInput: Deliveries to this address are not allowed.
            Forbidden: It would receive the audit log, which the author may not read.
            NotFound: There is no such agent.
            Gone: The agent was deleted.
            LimitExceeded: The tenant has its maximum of webhooks.
            Conflict: There is no master key.
        """
        self.check_url(given.url)
        webhook_id, secret = new_id("whk"), new_secret()
        sealed = self._seal(tenant_id, webhook_id, secret)
        new = NewWebhook(given.url, given.description, given.kinds, given.agent_id, given.enabled)
        _check_audit(new, may_audit=may_audit)
        async with self._work.database.transaction() as connection:
            await _require_agent(connection, tenant_id, given.agent_id)
            view = await ledger.create_webhook(
                connection, tenant_id, webhook_id, new, ciphertext=sealed.secret, key_id=sealed.key_id
            )
        return WebhookSecret(webhook=view, secret=secret)

    async def patch(
        self, tenant_id: str, webhook_id: str, given: WebhookPatch, *, may_audit: bool = False
    ) -> WebhookView:
        """Change the fields that `given` sets. Enabling it resets its failures.

        Raises:
            InvalidInput: A field has the wrong form.
            Forbidden: It receives the audit log, or would, which the author may not read.
            NotFound: There is no such webhook, or no such agent.
            Gone: The agent was deleted.
        """
        changes = {name: getattr(given, name) for name in given.model_fields_set}
        for name, value in changes.items():
            if value is None and name != "agent_id":
                raise InvalidInput(f"{name}: it cannot be null; leave it out to keep what it is.", field=name)
        if "url" in changes:
            self.check_url(changes["url"])
        async with self._work.begin() as tx:
            connection = tx.connection
            present = await ledger.get_webhook(connection, tenant_id, webhook_id, lock=True)
            await _require_agent(connection, tenant_id, changes.get("agent_id"))
            new = NewWebhook(**(present.model_dump(include=set(NewWebhook.__slots__)) | changes))
            # Also one that would no longer receive it: its deliveries under way would follow another address.
            _check_may_audit(present.kinds, may_audit=may_audit)
            _check_audit(new, may_audit=may_audit)
            forgive = changes.get("enabled") is True
            if forgive:
                # Deliveries that waited while it was disabled.
                tx.ring_deliveries()
            return await ledger.update_webhook(connection, tenant_id, webhook_id, new, forgive=forgive)

    async def delete(self, tenant_id: str, webhook_id: str, *, may_audit: bool = False) -> None:
        """Delete a webhook. Its pending deliveries fail.

        Raises:
            Forbidden: It receives the audit log, which the author may not read.
            NotFound: There is no such webhook.
        """
        async with self._work.database.transaction() as connection:
            present = await ledger.get_webhook(connection, tenant_id, webhook_id, lock=True)
            _check_may_audit(present.kinds, may_audit=may_audit)
            await ledger.delete_webhook(connection, tenant_id, webhook_id)

    async def rotate(self, tenant_id: str, webhook_id: str, *, grace_s: int, may_audit: bool = False) -> WebhookSecret:
        """Replace a webhook's secret. The new one is in this answer only.

        Args:
            grace_s: How long the old secret also signs.
            may_audit: Whether the author may read the audit log.

        Raises:
            Forbidden: It receives the audit log, which the author may not read.
            NotFound: There is no such webhook.
            Conflict: There is no master key, or a grace is given and the old secret cannot be decrypted.
        """
        secret = new_secret()
        async with self._work.database.transaction() as connection:
            endpoint = await webhook_secrets.lock_endpoint(connection, tenant_id, webhook_id)
            _check_may_audit(endpoint.kinds, may_audit=may_audit)
            # Under the master key of the new secret: the row has one key id for both.
            previous = self._open(endpoint, endpoint.secrets.secret) if grace_s else None
            sealed = self._seal(tenant_id, webhook_id, secret, previous)
            grace = timedelta(seconds=grace_s)
            await webhook_secrets.replace_secret(connection, tenant_id, webhook_id, sealed, grace=grace)
            view = await ledger.get_webhook(connection, tenant_id, webhook_id)
        return WebhookSecret(webhook=view, secret=secret)

    async def test(self, tenant_id: str, webhook_id: str) -> DeliveryView:
        """Queue an empty test delivery for a webhook, and return it.

        Raises:
            NotFound: There is no such webhook.
            Conflict: It is disabled.
        """
        delivery_id = new_id("dlv")
        async with self._work.begin() as tx:
            connection = tx.connection
            await self._require_enabled(connection, tenant_id, webhook_id)
            payload = {"text": _TEST_WORDS}
            new = NewDelivery(delivery_id, tenant_id, "test", webhook_id, payload, webhook_id=webhook_id)
            await add_deliveries(connection, [new])
            tx.ring_deliveries()
            return await get_delivery(connection, tenant_id, delivery_id)

    async def replay(self, tenant_id: str, delivery_id: str, *, may_audit: bool = False) -> DeliveryView:
        """Queue an ended delivery again, under the same id, or one that waits for its next attempt at once.

        Raises:
            Forbidden: It is of the audit log, which the author may not read.
            NotFound: There is no such delivery.
            Conflict: It is in the inbox, on its way, or its webhook is disabled or deleted.
        """
        async with self._work.begin() as tx:
            connection = tx.connection
            delivery = await get_delivery(connection, tenant_id, delivery_id)
            _check_may_audit((delivery.kind,), may_audit=may_audit)
            if delivery.webhook_id is not None:
                await self._require_enabled(connection, tenant_id, delivery.webhook_id)
                await end_rest(connection, tenant_id, delivery.webhook_id)
            tx.ring_deliveries()
            return await replay_delivery(connection, tenant_id, delivery)

    async def retry(self, tenant_id: str, target: str) -> None:
        """Try what waits for a webhook or a channel at once, and end the webhook's rest. Idempotent.

        Raises:
            NotFound: There is no such webhook, or nothing was ever to be sent to such a channel.
            Conflict: The webhook is disabled.
        """
        async with self._work.begin() as tx:
            connection = tx.connection
            if target.startswith(_WEBHOOK_ID):
                await self._require_enabled(connection, tenant_id, target)
                await end_rest(connection, tenant_id, target)
            else:
                existing(await is_known_target(connection, tenant_id, target) or None, "delivery_target", target)
            await retry_deliveries(connection, tenant_id, target)
            tx.ring_deliveries()

    def keys(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Return the secrets that currently sign deliveries to a webhook, the newest first.

        Raises:
            Conflict: One cannot be decrypted; the message says what the operator has to do.
        """
        kept = (endpoint.secrets.secret, endpoint.secrets.previous)
        return tuple(self._open(endpoint, ciphertext) for ciphertext in kept if ciphertext is not None)

    async def reseal(self) -> SecretRotation:
        """Encrypt again those secrets of all tenants' webhooks that are not under the current master key.

        Each batch is a transaction. It may be repeated at any time, and several may work at once.

        Raises:
            Conflict: There is no master key.
        """
        current = self._vault.current_key_id
        rotated = unreadable = 0
        after = ""
        while True:
            async with self._work.database.transaction() as connection:
                found = await webhook_secrets.lock_under_other_keys(connection, current, after=after, limit=_BATCH)
                for endpoint in found:
                    if await self._reseal(connection, endpoint):
                        rotated += 1
                    else:
                        unreadable += 1
            if not found:
                break
            after = found[-1].id
        async with self._work.database.connection() as connection:
            remaining = await webhook_secrets.count_under_other_keys(connection, current)
        return SecretRotation(key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)

    def check_url(self, url: str) -> None:
        """Refuse an address to which deliveries are not allowed. Each attempt checks what a host name resolves to.

        Raises:
            InvalidInput: It is no URL, or not one of the public internet over TLS.
        """
        check_delivery_url(url, allow_hosts=self._allow_hosts)

    async def _require_enabled(self, connection: Connection, tenant_id: str, webhook_id: str) -> None:
        if not (await ledger.get_webhook(connection, tenant_id, webhook_id)).enabled:
            raise Conflict(
                f"The webhook {webhook_id!r} is switched off. Switch it on first (`nova webhooks enable`).",
                webhook_id=webhook_id,
            )

    async def _reseal(self, connection: Connection, endpoint: Endpoint) -> bool:
        try:
            current, *previous = self.keys(endpoint)
        except Conflict as error:
            _log.warning("webhook.not_rotated", tenant_id=endpoint.tenant_id, webhook_id=endpoint.id, why=error.message)
            return False
        sealed = self._seal(endpoint.tenant_id, endpoint.id, current, *previous)
        await webhook_secrets.reseal(connection, endpoint, sealed)
        return True

    def _seal(self, tenant_id: str, webhook_id: str, secret: str, previous: str | None = None) -> SecretColumns:
        place = _place(webhook_id)
        sealed = self._vault.seal(tenant_id, place, secret)
        old = None if previous is None else self._vault.seal(tenant_id, place, previous).ciphertext
        return SecretColumns(sealed.ciphertext, sealed.key_id, old)

    def _open(self, endpoint: Endpoint, ciphertext: bytes) -> str:
        sealed = Sealed(endpoint.secrets.key_id, ciphertext)
        return self._vault.open(endpoint.tenant_id, _place(endpoint.id), sealed)


def _check_audit(webhook: NewWebhook, *, may_audit: bool) -> None:
    _check_may_audit(webhook.kinds, may_audit=may_audit)
    if _AUDIT in webhook.kinds and webhook.agent_id is not None:
        raise InvalidInput(
            f"agent_id: records of the audit log are of no agent; leave it out, or {_AUDIT!r}.", field="agent_id"
        )


def _check_may_audit(kinds: Collection[str], *, may_audit: bool) -> None:
    if _AUDIT in kinds and not may_audit:
        raise Forbidden(
            f"kinds: {_AUDIT!r} sends the audit log, which needs a key with the scope 'keys'.",
            field="kinds",
            needed="keys",
        )


async def _require_agent(connection: Connection, tenant_id: str, agent_id: str | None) -> None:
    if agent_id is not None:
        await get_agent(connection, tenant_id, agent_id)


def _place(webhook_id: str) -> str:
    """Return the name that binds a ciphertext to its webhook. No name of a secret has a slash."""
    return f"webhook/{webhook_id}"
