"""Secrets of a tenant: encrypted before they reach the ledger, decrypted only for runs that may read them."""

from __future__ import annotations

import re
from collections.abc import Collection

import structlog

from nova_workers.base.errors import Conflict, InvalidInput, NotFound, too_many
from nova_workers.base.observability.redactor import MIN_SECRET_CHARS
from nova_workers.contracts.content import storable
from nova_workers.contracts.http.secrets import MAX_SECRET_BYTES, SECRET_NAME_PATTERN, SecretRotation, SecretView
from nova_workers.domain.secrets import sql as ledger
from nova_workers.domain.secrets.rules.vault import Sealed, Vault
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

MAX_SECRETS = 500
"""Per tenant. A run that may read secrets searches all of them in what it stores."""
_BATCH = 200
_MOST_A_CALL = 10_000
_NAME = re.compile(SECRET_NAME_PATTERN)
_PLACEHOLDER = re.compile(r"\[secret:[A-Za-z][A-Za-z0-9_]*\]")


class Secrets:
    """The rules that people and agents share."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    async def put(
        self, tenant_id: str, name: str, value: str, *, by: str, description: str | None = None
    ) -> SecretView:
        """Create a secret, or replace its value.

        Raises:
            InvalidInput: Name or value has the wrong form. The message does not quote the value.
            LimitExceeded: The tenant has its maximum of secrets.
            Conflict: There is no master key.
        """
        _check_name(name)
        _check_value(value)
        sealed = self._vault.seal(tenant_id, name, value)
        async with self._database.connection() as connection:
            if await ledger.count_secrets(connection, tenant_id, beside=name) >= MAX_SECRETS:
                raise too_many(MAX_SECRETS, "secrets", "Delete unused ones.")
            row = await ledger.put_secret(
                connection,
                tenant_id,
                name,
                ciphertext=sealed.ciphertext,
                key_id=sealed.key_id,
                description=description,
                updated_by=by,
            )
        return _view(row)

    async def list(self, tenant_id: str, *, after: str | None, limit: int) -> tuple[SecretView, ...]:
        """Return a tenant's secrets without their values, by name, those after a name."""
        async with self._database.connection() as connection:
            rows = await ledger.list_secrets(connection, tenant_id, after=after, limit=limit)
        return tuple(_view(row) for row in rows)

    async def delete(self, tenant_id: str, name: str) -> None:
        """Delete a secret.

        Raises:
            NotFound: There is no secret of this name.
        """
        async with self._database.connection() as connection:
            await ledger.delete_secret(connection, tenant_id, name)

    async def get(self, tenant_id: str, name: str) -> str:
        """Return a secret's value.

        Raises:
            NotFound: There is no secret of this name.
            Conflict: It cannot be decrypted; the message says what the operator has to do.
        """
        return (await self.require(tenant_id, (name,)))[name]

    async def require(self, tenant_id: str, names: Collection[str]) -> dict[str, str]:
        """Return the values of these secrets, by name.

        Raises:
            NotFound: One is missing; the message names each.
            Conflict: One cannot be decrypted.
        """
        if not names:
            return {}
        async with self._database.connection() as connection:
            rows = await ledger.fetch_secrets(connection, tenant_id, names)
        absent = sorted(set(names) - {row.name for row in rows})
        if absent:
            raise NotFound(
                f"There is no secret {', '.join(map(repr, absent))}. Set it with `nova secrets set`.",
                kind="secret",
                id=absent[0],
                secrets=absent,
            )
        return {row.name: self._open(row) for row in rows}

    async def readable(
        self, connection: Connection, tenant_id: str, names: Collection[str] | None = None
    ) -> dict[str, str]:
        """Return the values of the secrets among these that exist and can be decrypted, by name; None is all.

        Values that cannot be decrypted cannot leak either, so they are left out.
        """
        opened: dict[str, str] = {}
        for row in await ledger.fetch_secrets(connection, tenant_id, names):
            try:
                opened[row.name] = self._open(row)
            except Conflict as error:
                _log.warning("secret_unreadable", secret_name=row.name, key_id=row.key_id, why=error.message)
        return opened

    async def rotate(self) -> SecretRotation:
        """Encrypt again those secrets of all tenants that are not under the current master key.

        The keys are read again first. Each batch is a transaction. It may be repeated at any time, and several may work
        at once.

        Raises:
            Conflict: There is no master key, or the keys cannot be read.
        """
        await self._vault.refresh()
        current = self._vault.current_key_id
        rotated = unreadable = seen = 0
        after = ("", "")
        while seen < _MOST_A_CALL:
            async with self._database.transaction() as connection:
                rows = await ledger.lock_under_other_keys(connection, current, after=after, limit=_BATCH)
                for row in rows:
                    if await self._rotate(connection, row):
                        rotated += 1
                    else:
                        unreadable += 1
            if not rows:
                break
            seen += len(rows)
            after = (rows[-1].tenant_id, rows[-1].name)
        async with self._database.connection() as connection:
            remaining = await ledger.count_under_other_keys(connection, current)
        _log.info("secrets_rotated", key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)
        return SecretRotation(key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)

    async def _rotate(self, connection: Connection, row: ledger.SecretRow) -> bool:
        try:
            value = self._open(row)
        except Conflict as error:
            _log.warning("secret_not_rotated", tenant_id=row.tenant_id, secret_name=row.name, why=error.message)
            return False
        sealed = self._vault.seal(row.tenant_id, row.name, value)
        await ledger.replace_ciphertext(connection, row, ciphertext=sealed.ciphertext, key_id=sealed.key_id)
        return True

    def _open(self, row: ledger.SecretRow) -> str:
        return self._vault.open(row.tenant_id, row.name, Sealed(row.key_id, row.ciphertext))


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"{name!r:.80} is no name of a secret: at most 64 capital letters, digits, underscores; a letter first.",
            field="name",
        )


def _check_value(value: str) -> None:
    if len(value.strip()) < MIN_SECRET_CHARS:
        raise InvalidInput(
            f"value has fewer than {MIN_SECRET_CHARS} characters. So short a text could not be kept out of what runs "
            "show and keep.",
            field="value",
        )
    if len(value) > MAX_SECRET_BYTES or len(value.encode("utf-8", "surrogatepass")) > MAX_SECRET_BYTES:
        raise InvalidInput(f"value is longer than {MAX_SECRET_BYTES} bytes.", field="value")
    if storable(value) != value:
        raise InvalidInput("value holds U+0000 or half a character, which cannot be used.", field="value")
    if _PLACEHOLDER.search(value):
        raise InvalidInput(
            "value holds what stands in the place of a secret, such as [secret:NAME], and not the secret itself.",
            field="value",
        )


def _view(row: ledger.SecretRow) -> SecretView:
    return SecretView(
        name=row.name,
        description=row.description,
        key_id=row.key_id,
        updated_by=row.updated_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
