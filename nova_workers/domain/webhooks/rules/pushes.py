"""Addresses that clients name for the changes of one run: their rules, and the secrets that go with each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit
from zlib import crc32

import orjson
import structlog
from pydantic import BaseModel

from nova_workers.base.errors import Conflict, IllegalTransition, too_many
from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import NewDelivery
from nova_workers.contracts.http.secrets import SecretRotation
from nova_workers.contracts.pushes import SIGNING_PREFIX, PushConfigCreate, PushConfigView
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.secrets.rules.vault import Sealed, Vault
from nova_workers.domain.webhooks.rules.addresses import check_delivery_url
from nova_workers.domain.webhooks.sql import push_configs as ledger
from nova_workers.domain.webhooks.sql.push_configs import MarkedRun, PushAddress, StoredPush
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

MAX_PUSH_CONFIGS: Final = 10
"""A run's: each of its changes causes as many requests."""

_LANES: Final = 16
"""How many a tenant has. An address that is down delays those of its lane, and a claim looks at each lane."""

_BATCH: Final = 200

AddPush = Callable[[Connection, str], Awaitable[None]]
"""Adds an address to the run of an id, in the transaction that makes the run."""

_log = structlog.get_logger(__name__)


class PushSecrets(BaseModel):
    """What a client wants sent with each request."""

    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None

    @property
    def signing_key(self) -> str | None:
        """The token, if it is a secret of Standard Webhooks."""
        return self.token if self.token is not None and self.token.startswith(SIGNING_PREFIX) else None

    def headers(self) -> dict[str, str]:
        """Return the headers that name the client's secrets. One that signs is not sent."""
        found: dict[str, str] = {}
        if self.token is not None and self.signing_key is None:
            found["x-a2a-notification-token"] = self.token
        if self.scheme is not None:
            found["authorization"] = f"{self.scheme} {self.credentials}"
        return found


class Pushes:
    """The rules of these addresses, for changes and for sending."""

    def __init__(self, work: Work, vault: Vault, *, allow_hosts: Collection[str] = ()) -> None:
        """Keep the dependencies.

        Args:
            work: Begins units of work.
            vault: Encrypts and decrypts the secrets.
            allow_hosts: ``host`` or ``host:port`` that the operator allows, which need neither be public nor use TLS.
        """
        self._work = work
        self._vault = vault
        self._allow_hosts = frozenset(allow_hosts)

    async def put(self, tenant_id: str, run_id: str, given: PushConfigCreate) -> PushConfigView:
        """Add an address to a run, or replace the one of its name.

        If the run has ended or asks a person already, the address is notified at once. Repeating it changes nothing.

        Raises:
            InvalidInput: Deliveries to the address are not allowed.
            NotFound: There is no such run in this tenant.
            IllegalTransition: The changes of the run are not its own; the message says why.
            LimitExceeded: The run has as many as it may.
            Conflict: It has secrets, and there is no master key.
        """
        self.check_url(given.url)
        async with self._work.begin() as tx:
            view, run = await self._put(tx.connection, tenant_id, run_id, given)
            if run.is_due:
                address = PushAddress(tenant_id, run_id, given.name, given.url)
                due = delivery_to(address, agent_id=run.agent_id, thread_id=run.thread_id)
                await add_deliveries(tx.connection, [due])
                tx.ring_deliveries()
        return view

    def adding(self, tenant_id: str, given: PushConfigCreate) -> AddPush:
        """Return the writer of an address for a run that is made by the same transaction.

        Raises:
            InvalidInput: Deliveries to the address are not allowed.
        """
        self.check_url(given.url)

        async def add(connection: Connection, run_id: str) -> None:
            await self._put(connection, tenant_id, run_id, given)

        return add

    def check_url(self, url: str) -> None:
        """Refuse an address to which deliveries are not allowed. Each attempt checks what a host name resolves to.

        Raises:
            InvalidInput: It is no URL, or not one of the public internet over TLS.
        """
        check_delivery_url(url, allow_hosts=self._allow_hosts)

    def secrets_of(self, stored: StoredPush) -> PushSecrets:
        """Return the secrets that go with each request to an address.

        Raises:
            Conflict: It cannot be decrypted; the message says what the operator has to do.
        """
        if stored.secret is None or stored.key_id is None:
            return PushSecrets()
        place = _place(stored.run_id, stored.name)
        opened = self._vault.open(stored.tenant_id, place, Sealed(stored.key_id, stored.secret))
        return PushSecrets.model_validate_json(opened)

    async def reseal(self) -> SecretRotation:
        """Encrypt again those secrets of all tenants' addresses that are not under the current master key.

        Each batch is a transaction. It may be repeated at any time, and several may work at once.

        Raises:
            Conflict: There is no master key.
        """
        current = self._vault.current_key_id
        rotated = unreadable = 0
        after = ("", "")
        while True:
            async with self._work.database.transaction() as connection:
                found = await ledger.lock_pushes_under_other_keys(connection, current, after=after, limit=_BATCH)
                for stored in found:
                    if await self._reseal(connection, stored):
                        rotated += 1
                    else:
                        unreadable += 1
            if not found:
                break
            after = (found[-1].run_id, found[-1].name)
        async with self._work.database.connection() as connection:
            remaining = await ledger.count_pushes_under_other_keys(connection, current)
        return SecretRotation(key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)

    async def _put(
        self, connection: Connection, tenant_id: str, run_id: str, given: PushConfigCreate
    ) -> tuple[PushConfigView, MarkedRun]:
        run = await ledger.mark_run(connection, tenant_id, run_id)
        _check_own_changes(run_id, run)
        if await ledger.count_others(connection, run_id, given.name) >= MAX_PUSH_CONFIGS:
            raise too_many(MAX_PUSH_CONFIGS, "push notification configurations of this run", "Delete one first.")
        sealed = self._sealed(tenant_id, run_id, given)
        view = await ledger.put_push_config(
            connection,
            tenant_id,
            run_id,
            given.name,
            url=given.url,
            secret=None if sealed is None else sealed.ciphertext,
            key_id=None if sealed is None else sealed.key_id,
        )
        return view, run

    def _sealed(self, tenant_id: str, run_id: str, given: PushConfigCreate) -> Sealed | None:
        secrets: dict[str, Any] = given.model_dump(include={"token", "scheme", "credentials"}, exclude_none=True)
        if not secrets:
            return None
        return self._vault.seal(tenant_id, _place(run_id, given.name), orjson.dumps(secrets).decode())

    async def _reseal(self, connection: Connection, stored: StoredPush) -> bool:
        try:
            secrets = self.secrets_of(stored)
        except Conflict as error:
            fields = {"tenant_id": stored.tenant_id, "run_id": stored.run_id, "name": stored.name}
            _log.warning("push_config.not_rotated", **fields, why=error.message)
            return False
        text = secrets.model_dump_json(exclude_none=True)
        sealed = self._vault.seal(stored.tenant_id, _place(stored.run_id, stored.name), text)
        await ledger.reseal_push(connection, stored, secret=sealed.ciphertext, key_id=sealed.key_id)
        return True


def delivery_to(address: PushAddress, *, agent_id: str | None, thread_id: str | None) -> NewDelivery:
    """Return the delivery that notifies an address of a change. What changed is read when it is sent."""
    return NewDelivery(
        id=new_id("dlv"),
        tenant_id=address.tenant_id,
        kind="task_changed",
        target=_lane(address),
        payload={"config": address.name},
        agent_id=agent_id,
        thread_id=thread_id,
        run_id=address.run_id,
    )


def _lane(address: PushAddress) -> str:
    host = urlsplit(address.url).netloc.lower()
    return f"push:{address.tenant_id}:{crc32(host.encode()) % _LANES}"


def _place(run_id: str, name: str) -> str:
    """Return the name that binds a ciphertext to its row. No name of a secret has a slash."""
    return f"push/{run_id}/{name}"


def _check_own_changes(run_id: str, run: MarkedRun) -> None:
    """Refuse a run whose message may be, or is, a part of another run's turn, and a run of a work order."""
    if run.merged_into is not None:
        why = f"its message joined the turn of run {run.merged_into!r}: name that one"
    elif run.on_busy in ("steer", "collect") and run.status in ("scheduled", "queued") and run.attempt == 0:
        why = "its message may still join the turn of another run: repeat this when it runs"
    elif run.source == "work_order":
        why = "the result of a work order is delivered by its order"
    else:
        return
    raise IllegalTransition(f"The changes of run {run_id!r} are sent nowhere: {why}.", status=run.status)
