"""People who may write to channels by a code that an operator confirmed. Of a code only the SHA-256 is stored."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final

from nova_workers.base.errors import existing, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.pairings import CODE_CHARS, PairingAnswer, PairingRequest, PairingView
from nova_workers.domain.keys.sql.keys import hash_secret
from nova_workers.ledger.database import Connection

_VALID: Final = timedelta(hours=1)
_MAX_ASKING: Final = 100
"""Bound on a channel's codes that are valid at once. Above it a stranger gets none: strangers cannot fill the table."""
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""The characters of a code: none looks like another."""

_COLUMNS = "id, channel, sender, name, asked_at, code_expires_at, paired_at"

_FIND = """
SELECT paired_at IS NOT NULL AS is_paired, code_expires_at > now() AS is_valid, code_expires_at FROM channel_pairings
 WHERE tenant_id = :tenant_id AND channel = :channel AND sender = :sender
"""

# Guarded by the row's own state: a person who is paired, or whose code is valid, gets no other code. What others
# asked for in vain is deleted with it, so that no more is stored than the bound.
_ASK = """
WITH expired AS (
    DELETE FROM channel_pairings
     WHERE tenant_id = :tenant_id AND channel = :channel AND sender <> :sender
       AND paired_at IS NULL AND code_expires_at <= now()
)
INSERT INTO channel_pairings AS p (id, tenant_id, channel, sender, name, code_hash, code_expires_at)
SELECT :pairing_id, :tenant_id, :channel, :sender, :name, :code_hash, now() + :valid::interval
 WHERE (SELECT count(*) FROM channel_pairings
         WHERE tenant_id = :tenant_id AND channel = :channel AND sender <> :sender
           AND paired_at IS NULL AND code_expires_at > now()) < :most
ON CONFLICT (tenant_id, channel, sender) DO UPDATE
   SET name = EXCLUDED.name, code_hash = EXCLUDED.code_hash, code_expires_at = EXCLUDED.code_expires_at,
       asked_at = now()
 WHERE p.paired_at IS NULL AND p.code_expires_at <= now()
RETURNING code_expires_at
"""

# The code stays, so that a repeated confirmation finds what the first one confirmed.
_CONFIRM = f"""
UPDATE channel_pairings SET paired_at = COALESCE(paired_at, now())
 WHERE tenant_id = :tenant_id AND code_hash = :code_hash AND (paired_at IS NOT NULL OR code_expires_at > now())
RETURNING {_COLUMNS}
"""

_LIST = f"""
SELECT {_COLUMNS} FROM channel_pairings
 WHERE tenant_id = :tenant_id AND (:before::text IS NULL OR id < :before)
   AND (paired_at IS NOT NULL OR code_expires_at > now())
 ORDER BY id DESC
 LIMIT :limit
"""

_END = "DELETE FROM channel_pairings WHERE tenant_id = :tenant_id AND id = :pairing_id RETURNING id"


async def ask_pairing(connection: Connection, tenant_id: str, request: PairingRequest) -> PairingAnswer:
    """Return whether a person may write to a channel; else a new code, unless one that was given is still valid."""
    who = {"tenant_id": tenant_id, "channel": request.channel, "sender": request.sender}
    found = await connection.fetchrow(_FIND, **who)
    if found is not None and found["is_paired"]:
        return PairingAnswer(paired=True)
    if not request.ask or (found is not None and found["is_valid"]):
        return PairingAnswer(paired=False, code_expires_at=None if found is None else found["code_expires_at"])
    code = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_CHARS))
    expires_at = await connection.fetchval(
        _ASK,
        **who,
        pairing_id=new_id("par"),
        name=request.name or "",
        code_hash=_hash_code(code),
        valid=_VALID,
        most=_MAX_ASKING,
    )
    return PairingAnswer(paired=False, code=None if expires_at is None else code, code_expires_at=expires_at)


async def confirm_pairing(connection: Connection, tenant_id: str, code: str) -> PairingView:
    """Let the person with this code write. Confirming it again changes nothing.

    Raises:
        NotFound: No person has this code, or it has expired.
    """
    row = await connection.fetchrow(_CONFIRM, tenant_id=tenant_id, code_hash=_hash_code(code))
    if row is None:
        raise missing("pairing_code", code, "It is valid for one hour; a person gets another one by writing again.")
    return PairingView(**row)


async def list_pairings(connection: Connection, tenant_id: str, *, before: str | None, limit: int) -> list[PairingView]:
    """Return the people who may write or ask to, the newest first, from before the id `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)
    return [PairingView(**row) for row in rows]


async def end_pairing(connection: Connection, tenant_id: str, pairing_id: str) -> None:
    """Take the right to write from a person.

    Raises:
        NotFound: There is no such pairing.
    """
    existing(
        await connection.fetchval(_END, tenant_id=tenant_id, pairing_id=pairing_id),
        "pairing",
        pairing_id,
    )


def _hash_code(code: str) -> bytes:
    return hash_secret("".join(character for character in code.upper() if character.isalnum()))
