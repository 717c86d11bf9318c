"""Records the result of an attempt: delivered, retried after a pause, failed, or its webhook disabled."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import structlog

from nova_workers.base.config import DeliverySettings
from nova_workers.base.errors import DeliveryFailed
from nova_workers.base.ids import new_id
from nova_workers.base.observability.addresses import bare_address, bare_addresses
from nova_workers.base.observability.redaction import redact
from nova_workers.contracts.deliveries import INBOX, DeliveryItem, NewDelivery
from nova_workers.domain.delivery.sql.outbox import (
    FailedAttempt,
    Failing,
    add_deliveries,
    count_failure,
    settle_delivered,
    settle_failed,
)
from nova_workers.domain.runs.rules.work_leases import WorkLeases
from nova_workers.ledger.database import Connection, Database

Outcome = Literal["delivered", "retried", "failed"]

_ERROR_CHARS: Final = 1_000
_REST_S: Final = (5.0, 300.0)
"""First and longest pause of a failing address, which gets one attempt at a time."""
_MOST_ASKED_S: Final = 3_600.0
"""Longest pause that a receiver may request."""

_log = structlog.get_logger(__name__)


def pause_s(pauses: Sequence[float], attempt: int, *, spread: float, asked_s: float | None = None) -> float:
    """Return how long to wait after a failed attempt.

    Args:
        pauses: After the first, the second...
        attempt: The failed attempt, from 1; there is a pause for it.
        spread: A random number from 0 to 1. The pause is up to a fifth longer, so that deliveries that failed together
            are not retried together.
        asked_s: The minimum that the receiver requests.
    """
    longer = pauses[attempt - 1] * (1 + spread / 5)
    return max(longer, min(asked_s or 0.0, _MOST_ASKED_S))


class Settler:
    """Records results of attempts, each in one transaction. A result after the lease was taken over changes nothing."""

    def __init__(
        self, database: Database, settings: DeliverySettings, leases: WorkLeases[DeliveryItem], rng: random.Random
    ) -> None:
        self._database = database
        self._settings = settings
        self._leases = leases
        self._rng = rng

    @property
    def most_attempts(self) -> int:
        """The maximum number of attempts."""
        return len(self._settings.retry_s) + 1

    async def delivered(self, item: DeliveryItem, response_status: int | None) -> Outcome:
        """Record that an item was delivered; otherwise it would be sent again. See `WorkLeases.settle`."""
        await self._leases.settle(lambda connection: settle_delivered(connection, item, response_status))
        _log.debug("delivery.done", **_fields(item), response_status=response_status)
        return "delivered"

    async def failed(self, item: DeliveryItem, failed: DeliveryFailed) -> Outcome:
        """Record that the receiver did not accept an item, and count the webhook's failure."""
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
        return self._outcome(item, ended)

    async def not_tried(self, item: DeliveryItem, error: str) -> Outcome:
        """Record that an item could not be sent, which is not the receiver's fault."""
        ended = self._describe(item, error, retryable=True)
        async with self._database.connection() as connection:
            await settle_failed(connection, item, ended)
        return self._outcome(item, ended)

    async def fail_finally(self, item: DeliveryItem, error: str) -> Outcome:
        """Record that an item has failed permanently."""
        ended = FailedAttempt(error, final=True)
        async with self._database.connection() as connection:
            await settle_failed(connection, item, ended)
        return self._outcome(item, ended)

    def _describe(
        self,
        item: DeliveryItem,
        error: str,
        *,
        retryable: bool,
        asked_s: float | None = None,
        status: int | None = None,
    ) -> FailedAttempt:
        reason = bare_addresses(redact(error))[:_ERROR_CHARS]
        if not retryable or item.attempt >= self.most_attempts:
            return FailedAttempt(reason, final=True, response_status=status)
        delay_s = pause_s(self._settings.retry_s, item.attempt, spread=self._rng.random(), asked_s=asked_s)
        return FailedAttempt(reason, final=False, delay=timedelta(seconds=delay_s), response_status=status)

    async def _count(self, connection: Connection, item: DeliveryItem, ended: FailedAttempt, *, unwanted: bool) -> None:
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

    def _outcome(self, item: DeliveryItem, ended: FailedAttempt) -> Outcome:
        if ended.final:
            _log.error("delivery.failed", **_fields(item), error=ended.error)
            return "failed"
        _log.warning(
            "delivery.retried", **_fields(item), error=ended.error, delay_s=round(ended.delay.total_seconds(), 1)
        )
        return "retried"


def _notice(item: DeliveryItem, failing: Failing) -> NewDelivery:
    """Return the inbox notification for a disabled webhook."""
    text = (
        f"The webhook {item.webhook_id} ({bare_address(failing.url)}) was switched off. {failing.disabled_reason} "
        f"Once it is fixed, switch it on: nova webhooks enable {item.webhook_id}"
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
