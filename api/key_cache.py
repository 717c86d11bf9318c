"""A cache of recently used API keys, which saves a query per request."""

from collections import OrderedDict

from nova_workers.base.clock import Clock
from nova_workers.domain.keys.sql.keys import AuthenticatedKey, find_key
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import all_tenants

_MAX_KEYS = 10_000


class KeyCache:
    """Looks keys up by their hash and caches valid ones for `cache_s`.

    So a revoked key stops working after at most that long. Unknown keys are not cached: guesses must not evict
    valid ones.
    """

    def __init__(self, database: Database, clock: Clock, *, cache_s: float) -> None:
        self._database = database
        self._clock = clock
        self._cache_s = cache_s
        self._known: OrderedDict[bytes, tuple[float, AuthenticatedKey]] = OrderedDict()

    def has_seen(self, digest: bytes) -> bool:
        """Return whether the key with this hash was valid when it was last read."""
        return digest in self._known

    async def find(self, digest: bytes) -> AuthenticatedKey | None:
        """Return the key with this hash; None if it is unknown, revoked or expired.

        Raises:
            Unavailable: The key is not cached, and the database does not answer.
        """
        now_s = self._clock.monotonic_s()
        good_until_s, key = self._known.get(digest, (0.0, None))
        if key is None or good_until_s <= now_s:
            # The key says which tenant it is of.
            with all_tenants():
                key = await self._look_up(digest)
            if key is None:
                self._known.pop(digest, None)
                return None
            self._known[digest] = (now_s + self._cache_s, key)
            self._known.move_to_end(digest)
            if len(self._known) > _MAX_KEYS:
                self._known.popitem(last=False)
        if key.expires_at is not None and key.expires_at <= self._clock.now():
            return None
        return key

    async def _look_up(self, digest: bytes) -> AuthenticatedKey | None:
        async with self._database.connection() as connection:
            return await find_key(connection, digest)

    def forget_tenant(self, tenant_id: str) -> None:
        """Remove all keys of a tenant: it was ended here."""
        for digest in [digest for digest, (_, key) in self._known.items() if key.tenant_id == tenant_id]:
            del self._known[digest]

    def forget(self, key_id: str) -> None:
        """Remove a key: it was revoked here."""
        for digest in [digest for digest, (_, key) in self._known.items() if key.key_id == key_id]:
            del self._known[digest]
