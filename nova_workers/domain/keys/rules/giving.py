"""Making and rotating API keys: no key gives what it lacks itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network

from nova_workers.base.errors import Conflict, Forbidden, InvalidInput
from nova_workers.contracts.http.keys import KeyCreate, KeyCreated, KeyRotate, KeyView
from nova_workers.domain.keys.sql.keys import create_key, lock_key, renew_secret, succeed_key
from nova_workers.ledger.database import Database

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class KeyRights:
    """What the key of a request may give to other keys.

    Attributes:
        scopes: Its scopes, with those that they include.
        networks: Those from which it may be used; empty: all.
    """

    scopes: Collection[str]
    networks: Sequence[Network] = ()

    def check(self, scopes: Iterable[str], networks: Sequence[Network]) -> None:
        """Refuse a key that has more rights than this one.

        Raises:
            Forbidden: It has a scope that this one lacks, or is valid in networks in which this one is not.
        """
        for scope in scopes:
            if scope not in self.scopes:
                yours = ", ".join(sorted(self.scopes)) or "none"
                raise Forbidden(f"This needs a key with the scope {scope!r}; yours has {yours}.", needed=scope)
        if self.networks and not (networks and all(map(self._contains, networks))):
            within = ", ".join(map(str, self.networks))
            raise Forbidden(
                f"networks: your key may be used from {within} only, and so may each key that it makes or rotates. "
                "Name networks within these.",
                field="networks",
            )

    def _contains(self, network: Network) -> bool:
        return any(_is_within(network, own) for own in self.networks)


async def make_key(
    database: Database, tenant_id: str, body: KeyCreate, *, rights: KeyRights, now: datetime
) -> KeyCreated:
    """Make a key. Its secret is in the result only.

    Raises:
        Forbidden: The caller's key lacks what the new one is to have.
        InvalidInput: It has expired already.
    """
    scopes = body.granted()
    rights.check(scopes, _networks(body.networks))
    if body.expires_at is not None and body.expires_at <= now:
        raise InvalidInput(f"expires_at is in the past: {body.expires_at.isoformat()!r}.", field="expires_at")
    async with database.connection() as connection:
        return await create_key(
            connection,
            tenant_id,
            name=body.name,
            scopes=scopes,
            expires_at=body.expires_at,
            role=body.role,
            networks=body.networks,
        )


async def rotate_key(
    database: Database, tenant_id: str, key_id: str, body: KeyRotate, *, rights: KeyRights
) -> KeyCreated:
    """Make the successor of a key, which ends after an overlap; the successor's secret is in the result only.

    A key gets one successor. While that was not used, rotating the key again gives the successor another secret, so
    that a lost answer can be asked for again; the end of the key stays that of the first time.

    Raises:
        NotFound: There is no such key.
        Forbidden: The caller's key lacks what the successor is to have.
        Conflict: The key was revoked or has expired, or its successor is in use.
    """
    async with database.transaction() as connection:
        locked = await lock_key(connection, tenant_id, key_id)
        key = locked.view
        rights.check(key.scopes, _networks(key.networks))
        if key.replaced_by is not None:
            renewed = await renew_secret(connection, tenant_id, key.replaced_by)
            if renewed is None:
                raise Conflict(
                    f"The key {key_id!r} was rotated to {key.replaced_by!r}, which was used since or is no longer "
                    "valid. Rotate that one, or make another key.",
                    replaced_by=key.replaced_by,
                )
            return renewed
        _check_valid(key, has_expired=locked.has_expired)
        return await succeed_key(connection, tenant_id, key_id, overlap=timedelta(seconds=body.overlap_s))


def _check_valid(key: KeyView, *, has_expired: bool) -> None:
    if key.revoked_at is not None or has_expired:
        state = "has expired" if key.revoked_at is None else "was revoked"
        raise Conflict(f"The key {key.id!r} {state}, and so has no successor. Make another key.", key_id=key.id)


def _networks(texts: Iterable[str]) -> list[Network]:
    return [ip_network(text) for text in texts]


def _is_within(network: Network, other: Network) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(other, IPv4Network) and network.subnet_of(other)
    return isinstance(other, IPv6Network) and network.subnet_of(other)
