"""How a try ended, and what follows: another after a pause, the end, or a webhook that is switched off."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import structlog

from nova_workers.config import DeliverySettings
from nova_workers.contracts.deliveries import INBOX, DeliveryItem, NewDelivery
from nova_workers.errors import DeliveryFailed
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.delivery.outbox import (
    FailedTry,
    Failing,
    add_deliveries,
    count_failure,
    settle_delivered,
    settle_failed,
)
from nova_workers.observability.redaction import redact

__all__ = ["Outcome", "Settler", "pause_s"]

Outcome = Literal["delivered", "retried", "failed"]

_ERROR_CHARS: Final = 1_000
_REST_S: Final = (5.0, 300.0)
"""First and longest rest of an address that fails: it gets one try at a time, and whoever waits there waits long."""
_MOST_ASKED_S: Final = 3_600.0
"""Longest pause that an address may ask for."""

_log = structlog.get_logger(__name__)


def pause_s(pauses: Sequence[float], attempt: int, *, spread: float, asked_s: float | None = None) -> float:
    """Return how long to wait after a failed try.

    Args:
        pauses: After the first, the second...
        attempt: The try that failed, from 1; there is a pause for it.
        spread: A random number from 0 to 1. The pause is up to a fifth longer, so that what failed together does not
            come back together.
        asked_s: What the receiver asks for at least.
    """
    longer = pauses[attempt - 1] * (1 + spread / 5)
    return max(longer, min(asked_s or 0.0, _MOST_ASKED_S))


class Settler:
    """Writes how tries ended. Each is a transaction; one that came too late, after its lease, changes nothing."""

    def __init__(self, database: Database, settings: DeliverySettings, rng: random.Random) -> None:
        self._database = database
        self._settings = settings
        self._rng = rng

    @property
    def most_attempts(self) -> int:
        """After so many tries a delivery has failed."""
        return len(self._settings.retry_s) + 1

    async def delivered(self, item: DeliveryItem, response_status: int | None) -> Outcome:
        """Write that an item was handed over."""
        async with self._database.connection() as connection:
            await settle_delivered(connection, item, response_status)
        _log.debug("delivery.done", **_fields(item), response_status=response_status)
        return "delivered"

    async def failed(self, item: DeliveryItem, failed: DeliveryFailed) -> Outcome:
        """Write that the receiver did not take an item, and what that means for the webhook."""
        ended = self._describe(
            item,
            failed.message,
            retryable=failed.retryable,
            asked_s=failed.retry_after_s,
            status=failed.response_status,
        )
        async with self._database.transaction() as connection:
            if await settle_failed(connection, item, ended) and item.webhook_id is not None:
                await self._count(connection, item, ended, unwanted=failed.unwanted)
        return self._told(item, ended)

    async def not_tried(self, item: DeliveryItem, error: str) -> Outcome:
        """Write that an item did not even leave: no fault of the receiver."""
        ended = self._describe(item, error, retryable=True)
        async with self._database.connection() as connection:
            await settle_failed(connection, item, ended)
        return self._told(item, ended)

    async def give_up(self, item: DeliveryItem, error: str) -> Outcome:
        """Write that an item has failed."""
        ended = FailedTry(error, final=True)
        async with self._database.connection() as connection:
            await settle_failed(connection, item, ended)
        return self._told(item, ended)

    def _describe(
        self,
        item: DeliveryItem,
        error: str,
        *,
        retryable: bool,
        asked_s: float | None = None,
        status: int | None = None,
    ) -> FailedTry:
        reason = redact(error)[:_ERROR_CHARS]
        if not retryable or item.attempt >= self.most_attempts:
            return FailedTry(reason, final=True, response_status=status)
        delay_s = pause_s(self._settings.retry_s, item.attempt, spread=self._rng.random(), asked_s=asked_s)
        return FailedTry(reason, final=False, delay=timedelta(seconds=delay_s), response_status=status)

    async def _count(self, connection: Connection, item: DeliveryItem, ended: FailedTry, *, unwanted: bool) -> None:
        assert item.webhook_id is not None  # noqa: S101 - narrows the type; the caller has looked
        settings = self._settings
        failing = await count_failure(
            connection,
            item.webhook_id,
            rest_after=settings.rest_after_failures,
            rest_s=_REST_S,
            disable_after=settings.disable_after_failures,
            disable_span=timedelta(seconds=settings.disable_after_s),
            unwanted=unwanted,
            error=ended.error,
        )
        if failing is not None and not failing.enabled:
            await add_deliveries(connection, [_notice(item, failing)])
            _log.warning("webhook.disabled", **_fields(item), failures=failing.failures, why=failing.disabled_reason)

    def _told(self, item: DeliveryItem, ended: FailedTry) -> Outcome:
        if ended.final:
            _log.error("delivery.failed", **_fields(item), error=ended.error)
            return "failed"
        _log.warning(
            "delivery.retried", **_fields(item), error=ended.error, delay_s=round(ended.delay.total_seconds(), 1)
        )
        return "retried"


def _notice(item: DeliveryItem, failing: Failing) -> NewDelivery:
    """Return what the inbox is told when a webhook is switched off."""
    text = (
        f"The webhook {item.webhook_id} ({failing.url}) was switched off. {failing.disabled_reason} "
        f"Once it is mended, switch it on: nova webhooks enable {item.webhook_id}"
    )
    payload = {"text": text, "webhook_id": item.webhook_id}
    return NewDelivery(new_id("dlv"), item.tenant_id, "notification", INBOX, payload)


def _fields(item: DeliveryItem) -> dict[str, object]:
    return {
        "delivery_id": item.id,
        "kind": item.kind,
        "target": item.target,
        "tenant_id": item.tenant_id,
        "run_id": item.run_id,
        "delivery_attempt": item.attempt,
    }
