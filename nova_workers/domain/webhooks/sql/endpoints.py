"""Webhooks and their subscriptions. Their secrets are in `signing_secrets`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nova_workers.base.errors import existing, too_many
from nova_workers.contracts.http.webhooks import WebhookView
from nova_workers.ledger.database import Connection

MAX_WEBHOOKS = 50
"""A tenant's: each end of a run may cause as many requests. Approximate: two concurrent creates may both take the last
free place."""

_COLUMNS = """
id, url, description, kinds, agent_id, enabled, disabled_reason, failures, failing_since,
CASE WHEN rests_until > now() THEN rests_until END AS rests_until,
CASE WHEN previous_expires_at > now() THEN previous_expires_at END AS previous_expires_at, created_at, updated_at
"""

_CREATE = f"""
INSERT INTO webhooks (id, tenant_id, url, description, kinds, agent_id, enabled, secret, key_id)
SELECT :webhook_id, :tenant_id, :url, :description, :kinds, :agent_id, :enabled, :secret, :key_id
 WHERE (SELECT count(*) FROM webhooks WHERE tenant_id = :tenant_id) < :at_most
RETURNING {_COLUMNS}
"""

_GET = f"SELECT {_COLUMNS} FROM webhooks WHERE tenant_id = :tenant_id AND id = :webhook_id"

_LIST = f"""
SELECT {_COLUMNS} FROM webhooks
 WHERE tenant_id = :tenant_id AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""

# `forgive`: enabling a webhook resets its failures.
_UPDATE = f"""
UPDATE webhooks
   SET url = :url, description = :description, kinds = :kinds, agent_id = :agent_id, enabled = :enabled,
       updated_at = now(),
       disabled_reason = CASE WHEN :forgive THEN NULL ELSE disabled_reason END,
       failures = CASE WHEN :forgive THEN 0 ELSE failures END,
       failing_since = CASE WHEN :forgive THEN NULL ELSE failing_since END,
       rests_until = CASE WHEN :forgive THEN NULL ELSE rests_until END
 WHERE tenant_id = :tenant_id AND id = :webhook_id
RETURNING {_COLUMNS}
"""

# Deletes a webhook and fails its pending deliveries in one statement.
_DELETE = """
WITH gone AS (
    DELETE FROM webhooks WHERE tenant_id = :tenant_id AND id = :webhook_id RETURNING id
), unsent AS (
    UPDATE deliveries d SET status = 'failed', error = 'The webhook was deleted.'
      FROM gone
     WHERE d.target = gone.id COLLATE "default" AND d.status = 'pending'
)
SELECT id FROM gone
"""

_SUBSCRIPTIONS = (
    "SELECT id, tenant_id, kinds, agent_id FROM webhooks WHERE tenant_id = ANY (:tenant_ids) AND enabled ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """Validated settings of a webhook."""

    url: str
    description: str
    kinds: Sequence[str]
    agent_id: str | None
    enabled: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """The kinds and the agent that an enabled webhook subscribes to."""

    id: str
    tenant_id: str
    kinds: tuple[str, ...]
    agent_id: str | None

    def wants(self, tenant_id: str, kind: str, agent_id: str | None) -> bool:
        """Return whether it subscribes to deliveries of this kind and agent."""
        return (
            self.tenant_id == tenant_id
            and (not self.kinds or kind in self.kinds)
            and (self.agent_id is None or self.agent_id == agent_id)
        )


async def create_webhook(
    connection: Connection, tenant_id: str, webhook_id: str, webhook: NewWebhook, *, ciphertext: bytes, key_id: str
) -> WebhookView:
    """Store a new webhook, and its encrypted secret.

    Raises:
        LimitExceeded: The tenant has the most webhooks allowed.
    """
    row = await connection.fetchrow(
        _CREATE,
        webhook_id=webhook_id,
        tenant_id=tenant_id,
        **_values(webhook),
        secret=ciphertext,
        key_id=key_id,
        at_most=MAX_WEBHOOKS,
    )
    if row is None:
        raise too_many(MAX_WEBHOOKS, "webhooks", "Delete unused ones.")
    return WebhookView(**row)


async def get_webhook(connection: Connection, tenant_id: str, webhook_id: str, *, lock: bool = False) -> WebhookView:
    """Return a webhook.

    Args:
        connection: In a transaction, if `lock` is set.
        tenant_id: Tenant of the webhook.
        lock: Whether to lock it until the transaction ends.

    Raises:
        NotFound: There is no such webhook.
    """
    statement = f"{_GET} FOR UPDATE" if lock else _GET
    row = await connection.fetchrow(statement, tenant_id=tenant_id, webhook_id=webhook_id)
    return WebhookView(**existing(row, "webhook", webhook_id))


async def list_webhooks(connection: Connection, tenant_id: str, *, before: str | None, limit: int) -> list[WebhookView]:
    """Return webhooks, newest first, from before the webhook `before`."""
    return [
        WebhookView(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)
    ]


async def update_webhook(
    connection: Connection, tenant_id: str, webhook_id: str, webhook: NewWebhook, *, forgive: bool
) -> WebhookView:
    """Replace the settings of a webhook.

    Raises:
        NotFound: There is no such webhook.
    """
    row = await connection.fetchrow(
        _UPDATE, tenant_id=tenant_id, webhook_id=webhook_id, **_values(webhook), forgive=forgive
    )
    return WebhookView(**existing(row, "webhook", webhook_id))


async def delete_webhook(connection: Connection, tenant_id: str, webhook_id: str) -> None:
    """Delete a webhook. Its pending deliveries fail.

    Raises:
        NotFound: There is no such webhook.
    """
    existing(await connection.fetchval(_DELETE, tenant_id=tenant_id, webhook_id=webhook_id), "webhook", webhook_id)


async def list_subscriptions(connection: Connection, tenant_ids: Collection[str]) -> list[Subscription]:
    """Return the subscriptions of the enabled webhooks of these tenants."""
    rows = await connection.fetch(_SUBSCRIPTIONS, tenant_ids=list(tenant_ids))
    return [Subscription(row["id"], row["tenant_id"], tuple(row["kinds"]), row["agent_id"]) for row in rows]


def _values(webhook: NewWebhook) -> dict[str, object]:
    return {
        "url": webhook.url,
        "description": webhook.description,
        "kinds": list(webhook.kinds),
        "agent_id": webhook.agent_id,
        "enabled": webhook.enabled,
    }
