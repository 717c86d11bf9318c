"""The channel of push notifications: how a task of the A2A protocol is now, to the address that its client named."""

from __future__ import annotations

import orjson

from nova_workers.base.errors import DeliveryFailed, InvalidInput, NotFound
from nova_workers.base.outbound.requests import Outbound
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.delivery.rules.channels import PUSHES
from nova_workers.domain.delivery.rules.task_status import task_status
from nova_workers.domain.delivery.rules.webhooks import post
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.webhooks.rules.pushes import Pushes
from nova_workers.domain.webhooks.rules.standard_webhooks import signed_headers
from nova_workers.domain.webhooks.sql.push_configs import StoredPush, find_stored_push
from nova_workers.ledger.database import Database


class PushChannel:
    """Sends the status of a run to one address. Redirects are not followed.

    The status is read when it is sent, so that a late attempt reports no state that is past.
    """

    name = PUSHES

    def __init__(self, database: Database, pushes: Pushes, outbound: Outbound) -> None:
        """Store the parts.

        Args:
            database: Of the ledger.
            pushes: Decrypts secrets of clients.
            outbound: Sends requests, to the public internet only.
        """
        self._database = database
        self._pushes = pushes
        self._outbound = outbound

    async def deliver(self, item: DeliveryItem) -> int:
        """Send one notification, and return the status of the answer, one of 2xx. See `DeliveryChannel.deliver`.

        Raises:
            DeliveryFailed: The address did not accept it.
            Conflict: Its secrets cannot be decrypted, which is not the receiver's fault.
        """
        stored, run = await self._read(item)
        body = body_of(run)
        secrets = self._pushes.secrets_of(stored)
        keys = () if secrets.signing_key is None else (secrets.signing_key,)
        headers = {
            "content-type": "application/a2a+json",
            **signed_headers(item.id, stored.at, body, keys),
            **secrets.headers(),
        }
        return await post(self._outbound, stored.url, headers, body)

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    async def _read(self, item: DeliveryItem) -> tuple[StoredPush, RunView]:
        run_id = str(item.run_id)
        async with self._database.connection() as connection:
            stored = await find_stored_push(connection, item.tenant_id, run_id, str(item.payload["config"]))
            if stored is None:
                raise DeliveryFailed("Its push notification configuration was deleted.", retryable=False)
            try:
                run = await get_run(connection, item.tenant_id, run_id)
            except NotFound as error:
                raise DeliveryFailed(error.message, retryable=False) from error
        try:
            # The operator's rules may have changed since the address was named.
            self._pushes.check_url(stored.url)
        except InvalidInput as error:
            raise DeliveryFailed(error.message, retryable=False) from error
        return stored, run


def body_of(run: RunView) -> bytes:
    """Return the body that reports the status of a run: a `StreamResponse` of the protocol."""
    update = {"taskId": run.id, "contextId": run.thread_id, "status": task_status(run.id, run)}
    return orjson.dumps({"statusUpdate": update})
