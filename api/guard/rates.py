"""How often an address or a key may call, and how many wrong keys an address may try.

Counted in this process, so that a request costs no round trip: with N processes a client gets up to N times as much.
The store keeps one time per client (GCRA) and forgets the clients that it has not seen for longest, so neither its
memory nor the work of a request grows with their number. `limits`, which paces model calls, walks all keys of its store
in memory at every hit (0.7 ms for 10,000 addresses, measured).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from throttled import RateLimiterType, Throttled
from throttled.rate_limiter import BaseRateLimiter, Quota, per_min, per_sec
from throttled.store import MemoryStore

from nova_workers.base.config.sections import ApiSettings

from ..errors import RateLimited, TooManyFailedKeys

_BURST_S: Final = 10
"""A client may use the rate of so many seconds at once."""
_MAX_CLIENTS: Final = 20_000
_LOOKUPS: Final = 4
"""Concurrent queries for keys that this process has not seen: a third of the database's connections by default."""


class RequestRates:
    """The limits of one process."""

    def __init__(self, settings: ApiSettings) -> None:
        self._per_key = _limiter(_per_second(settings.requests_per_s_per_key))
        self._per_address = _limiter(_per_second(settings.requests_per_s_per_address))
        self._without_key = _limiter(_per_second(settings.requests_per_s_without_key))
        self._failed = _limiter(per_min(settings.failed_keys_per_minute))
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    def count_address(self, group: str) -> None:
        """Count a request of an address.

        Raises:
            RateLimited: It made too many.
        """
        _count(self._per_address, group, "address", "NOVA_API__REQUESTS_PER_S_PER_ADDRESS")

    def count_without_key(self, group: str) -> None:
        """Count a request of an address that has no valid key, or needs none.

        Raises:
            RateLimited: It made too many.
        """
        _count(self._without_key, group, "address, without a key,", "NOVA_API__REQUESTS_PER_S_WITHOUT_KEY")

    def count_key(self, key_id: str) -> None:
        """Count a request with a key.

        Raises:
            RateLimited: It made too many.
        """
        _count(self._per_key, key_id, "key", "NOVA_API__REQUESTS_PER_S_PER_KEY")

    @asynccontextmanager
    async def lookup(self, group: str) -> AsyncGenerator[None]:
        """Hold one of the few permits to look an unknown key up.

        A refusal costs no query. So an address that guesses slows itself, and no other: not even a key that it shares
        with another address.

        Raises:
            TooManyFailedKeys: The address tried too many wrong keys.
        """
        async with self._lookups:
            state = self._failed.peek(group)
            if state.remaining < 1:
                raise TooManyFailedKeys(
                    f"Your address sent more than {state.limit} API keys that are not valid within a minute. Wait "
                    f"{state.retry_after:.0f} s, then send one that is. The operator sets the limit with "
                    "NOVA_API__FAILED_KEYS_PER_MINUTE.",
                    retry_after_s=state.retry_after,
                )
            yield

    def count_failed_key(self, group: str) -> None:
        """Count a wrong key of an address."""
        self._failed.limit(group)


def _per_second(requests: int) -> Quota:
    return per_sec(requests, burst=requests * _BURST_S)


def _limiter(quota: Quota) -> BaseRateLimiter:
    store = MemoryStore(options={"MAX_SIZE": _MAX_CLIENTS})
    return Throttled(using=RateLimiterType.GCRA.value, quota=quota, store=store).limiter


def _count(limiter: BaseRateLimiter, name: str, of: str, setting: str) -> None:
    result = limiter.limit(name)
    if result.limited:
        state = result.state
        raise RateLimited(
            f"Your {of} made more than {state.limit // _BURST_S} requests a second for {_BURST_S} s. Send fewer. The "
            f"operator sets the limit with {setting}.",
            per_s=state.limit // _BURST_S,
            retry_after_s=state.retry_after,
        )
