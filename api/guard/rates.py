"""How often an address or a key may call, and how many wrong keys an address may try.

Counted in this process, so that a request costs no round trip: with N processes a client gets up to N times as much.
`limits`, which paces model calls, walks all keys of its store in memory at every hit (0.7 ms for 10,000 addresses,
measured).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from nova_workers.base.clock import Clock
from nova_workers.base.config.sections import ApiSettings

from ..errors import RateLimited, TooManyFailedKeys
from .paces import Paces

_BURST_S: Final = 10
"""A client may use the rate of so many seconds at once."""
_MAX_CLIENTS: Final = 20_000
_LOOKUPS: Final = 4
"""Concurrent queries for keys that this process has not seen: a third of the database's connections by default."""


class RequestRates:
    """The limits of one process."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._clock = clock
        self._per_key = _per_second(settings.requests_per_s_per_key)
        self._per_address = _per_second(settings.requests_per_s_per_address)
        self._without_key = _per_second(settings.requests_per_s_without_key)
        self._failed = _paces(settings.failed_keys_per_minute, 60)
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    def count_address(self, group: str) -> None:
        """Count a request of an address.

        Raises:
            RateLimited: It made too many.
        """
        self._count(self._per_address, group, "address", "NOVA_API__REQUESTS_PER_S_PER_ADDRESS")

    def count_without_key(self, group: str) -> None:
        """Count a request of an address that has no valid key, or needs none.

        Raises:
            RateLimited: It made too many.
        """
        self._count(self._without_key, group, "address, without a key,", "NOVA_API__REQUESTS_PER_S_WITHOUT_KEY")

    def count_key(self, key_id: str) -> None:
        """Count a request with a key.

        Raises:
            RateLimited: It made too many.
        """
        self._count(self._per_key, key_id, "key", "NOVA_API__REQUESTS_PER_S_PER_KEY")

    @asynccontextmanager
    async def lookup(self, group: str) -> AsyncGenerator[None]:
        """Hold one of the few permits to look an unknown key up.

        A refusal costs no query. So an address that guesses slows itself, and no other: not even a key that it shares
        with another address.

        Raises:
            TooManyFailedKeys: The address tried too many wrong keys.
        """
        async with self._lookups:
            wait_s = self._failed.wait_s(group, self._clock.monotonic_s())
            if wait_s:
                raise TooManyFailedKeys(
                    f"Your address sent more than {self._failed.at_once} API keys that are not valid within a minute. "
                    f"Wait {wait_s:.0f} s, then send one that is. The operator sets the limit with "
                    "NOVA_API__FAILED_KEYS_PER_MINUTE.",
                    retry_after_s=wait_s,
                )
            yield

    def count_failed_key(self, group: str) -> None:
        """Count a wrong key of an address."""
        self._failed.take(group, self._clock.monotonic_s())

    def _count(self, paces: Paces, name: str, of: str, setting: str) -> None:
        wait_s = paces.take(name, self._clock.monotonic_s())
        if wait_s:
            per_s = paces.at_once // _BURST_S
            raise RateLimited(
                f"Your {of} made more than {per_s} requests a second for {_BURST_S} s. Send fewer. The operator sets "
                f"the limit with {setting}.",
                per_s=per_s,
                retry_after_s=wait_s,
            )


def _per_second(requests: int) -> Paces:
    return _paces(requests * _BURST_S, _BURST_S)


def _paces(most: int, in_s: float) -> Paces:
    """Return the paces of clients that may do so many at once, and then as many in each such time."""
    return Paces(interval_s=in_s / most, at_once=most, most=_MAX_CLIENTS)
