"""The webhook channel: one signed request per attempt, by the Standard Webhooks specification."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import orjson

from nova_workers.base.errors import DeliveryFailed, InvalidInput, OutboundFailed
from nova_workers.base.outbound.requests import Outbound, OutboundResponse
from nova_workers.contracts.deliveries import AUDIT_HEAD, DeliveryItem, DeliveryKind
from nova_workers.domain.audit.sql.listing import get_audit_events
from nova_workers.domain.delivery.rules.channels import WEBHOOKS
from nova_workers.domain.webhooks.rules.service import Webhooks
from nova_workers.domain.webhooks.rules.standard_webhooks import signed_headers
from nova_workers.domain.webhooks.sql.signing_secrets import Endpoint, fetch_endpoint
from nova_workers.ledger.database import Database

EVENT_TYPES: Mapping[DeliveryKind, str] = {
    "notification": "agent.notification",
    "file": "agent.file",
    "note": "agent.note",
    "question": "run.question",
    "approval": "run.approval",
    "run_completed": "run.completed",
    "work_order_completed": "work_order.completed",
    "work_order_review": "work_order.review",
    "audit_recorded": "audit.recorded",
    "feedback_given": "feedback.given",
    "rollout_changed": "rollout.changed",
    "score_drifted": "score.drifted",
    "test": "webhook.test",
}
"""The event's ``type``, by kind."""

_SEALED = "audit.sealed"
"""The ``type`` of a delivery of the audit log with the head of its chain instead of records."""


class WebhookChannel:
    """Sends each item to the address of its webhook. Redirects are not followed."""

    name = WEBHOOKS

    def __init__(self, database: Database, webhooks: Webhooks, outbound: Outbound, *, max_body_bytes: int) -> None:
        """Store the parts.

        Args:
            database: Of the ledger.
            webhooks: Decrypts their secrets.
            outbound: Sends requests, to the public internet only.
            max_body_bytes: The longest body to send.
        """
        self._database = database
        self._webhooks = webhooks
        self._outbound = outbound
        self._max_body_bytes = max_body_bytes

    async def deliver(self, item: DeliveryItem) -> int:
        """Send one item, and return the status of the answer, one of 2xx. See `DeliveryChannel.deliver`.

        Raises:
            DeliveryFailed: The address did not accept it.
            Conflict: Its secret cannot be decrypted, which is not the receiver's fault.
        """
        endpoint = await self._endpoint(item)
        body = body_of(await self._with_records(item, endpoint))
        if len(body) > self._max_body_bytes:
            raise DeliveryFailed(
                f"The body has {len(body)} bytes; {self._max_body_bytes} are the most.", retryable=False
            )
        headers = {
            "content-type": "application/json",
            # The database's time: receivers refuse as old what a host with a wrong clock signs.
            **signed_headers(item.id, endpoint.at, body, self._webhooks.keys(endpoint)),
        }
        return await post(self._outbound, endpoint.url, headers, body)

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    async def _with_records(self, item: DeliveryItem, endpoint: Endpoint) -> DeliveryItem:
        """Return a delivery of the audit log with its records, of which the outbox has the ids only."""
        if item.kind != "audit_recorded":
            return item
        if item.kind not in endpoint.kinds:
            # Since it was queued. Its address may be by a key that may not read the audit log.
            raise DeliveryFailed("The webhook no longer subscribes to the audit log.", retryable=False)
        if AUDIT_HEAD in item.payload:
            return item
        async with self._database.connection() as connection:
            records = await get_audit_events(connection, item.tenant_id, item.payload["ids"])
        return replace(item, payload={"records": [record.model_dump(mode="json") for record in records]})

    async def _endpoint(self, item: DeliveryItem) -> Endpoint:
        async with self._database.connection() as connection:
            endpoint = await fetch_endpoint(connection, item.tenant_id, item.target)
        if endpoint is None:
            raise DeliveryFailed("The webhook was deleted.", retryable=False)
        if not endpoint.enabled:
            raise DeliveryFailed("The webhook is switched off.", retryable=True)
        try:
            # The operator's rules may have changed since the address was set.
            self._webhooks.check_url(endpoint.url)
        except InvalidInput as error:
            raise DeliveryFailed(error.message, retryable=False) from error
        return endpoint


async def post(outbound: Outbound, url: str, headers: Mapping[str, str], body: bytes) -> int:
    """Send one request, and return the status of the answer, one of 2xx.

    Raises:
        DeliveryFailed: The address did not accept it.
    """
    try:
        answer = await outbound.request("POST", url, headers=headers, content=body, follow=False)
    except OutboundFailed as error:
        raise DeliveryFailed(error.message, retryable=not error.refused) from error
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        raise _refused(answer)
    return answer.status


def body_of(item: DeliveryItem) -> bytes:
    """Return the body for an item: type, time and data."""
    about = {
        "delivery_id": item.id,
        "agent_id": item.agent_id,
        "thread_id": item.thread_id,
        "run_id": item.run_id,
    }
    head = item.payload.get(AUDIT_HEAD) if item.kind == "audit_recorded" else None
    kind, data = (EVENT_TYPES[item.kind], item.payload) if head is None else (_SEALED, head)
    event = {"type": kind, "timestamp": item.created_at, "data": about | data}
    return orjson.dumps(event, option=orjson.OPT_UTC_Z)


def _refused(answer: OutboundResponse) -> DeliveryFailed:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        why = f"The address answered {answer.status}, and no redirect is followed."
    else:
        why = f"The address answered {answer.status}."
    return DeliveryFailed(
        why,
        retryable=answer.status != HTTPStatus.GONE,
        response_status=answer.status,
        retry_after_s=_retry_after_s(answer.headers.get("retry-after", "")),
        unwanted=answer.status == HTTPStatus.GONE,
    )


def _retry_after_s(text: str) -> float | None:
    """Return the pause that a receiver requests in seconds. A date is ignored: the receiver's clock may differ."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
