"""When and how long the clients wait before a request is repeated."""

import random
from dataclasses import dataclass

import httpx2

from nova_workers.base.errors import OutcomeUnknown, Unavailable
from nova_workers.client.problems import with_key

_ATTEMPTS = 3
_DOUBTFUL_ATTEMPTS = 7
"""The attempts at a request that may have been accepted: about 5 s, to find out."""

_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries with exponential backoff and full jitter, so that clients do not retry in lockstep."""

    attempts: int = 15
    """Consecutive failures before an error is raised. With the waits below that is about 40 s, enough for a
    redeployment of the API."""
    base_s: float = 0.1
    max_s: float = 5.0

    def delay_s(self, failures: int) -> float:
        """Return the wait after a number of consecutive failures (1 or more)."""
        # Without the bound of the exponent, the thousandth wait would be too large for a float.
        ceiling_s = min(self.max_s, self.base_s * 2 ** min(failures - 1, _MAX_DOUBLINGS))
        return random.uniform(ceiling_s / 2, ceiling_s)  # noqa: S311 - spreads load, guards nothing


class Attempts:
    """The failed attempts of one request, which decide whether it is sent again.

    An attempt that may have been accepted stays so: a later failure says nothing about it.

    Args:
        retry: How often, and the waits.
        key: The request's Idempotency-Key.
        repeatable: Whether the request may be sent again.
        is_once: Whether the API carries it out once, however often it is sent.
    """

    def __init__(self, retry: Retry, key: str | None, *, repeatable: bool, is_once: bool) -> None:
        self._retry = retry
        self._key = key
        self._repeatable = repeatable
        self._is_once = is_once
        self._failures = 0
        self._in_doubt: OutcomeUnknown | None = None

    def fail(self, error: Unavailable) -> float:
        """Record a failure, and return how many seconds to wait before the next attempt.

        Raises:
            Unavailable: There is none. Of an attempt that may have been accepted if there was one, with the key.
        """
        self._failures += 1
        if self._in_doubt is None and isinstance(error, OutcomeUnknown):
            self._in_doubt = error
        # Without a key, a repetition of what may have been done may do it twice, or be refused since it was done.
        is_repeatable = self._repeatable and (self._in_doubt is None or self._is_once)
        if not is_repeatable or self._failures >= self._most(error.__cause__):
            raise with_key(self._in_doubt or error, self._key) from error.__cause__
        return self._retry.delay_s(self._failures)

    def _most(self, cause: BaseException | None) -> int:
        is_refused = isinstance(cause, httpx2.ConnectError)
        if isinstance(cause, httpx2.TimeoutException) or (is_refused and self._in_doubt is None):
            return 1
        return min(_DOUBTFUL_ATTEMPTS if self._in_doubt is not None else _ATTEMPTS, self._retry.attempts)
