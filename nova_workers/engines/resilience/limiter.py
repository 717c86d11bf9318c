"""The provider's rate limit, shared by all workers: a call over the limit waits.

The window is exact (`limits`' moving window): no window admits more requests than allowed. While Redis is unavailable
each process applies the limit by itself. Tokens are taken from a second window in units of about a thousandth of the
limit, since the window stores one entry per unit. They are estimated before a call and corrected after it: the
difference is settled with this process's next call with the same key and model.

A refused call waits. In each process the calls of one key and model form a queue, and only its first call asks Redis,
so the requests to Redis grow with the number of workers, not of turns.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.asyncio import Redis

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.resilience.redis_link import RedisLink

_Answer = TypeVar("_Answer")

ANY_MODEL = "*"
_UNITS = 1000
"""Units of a token window, each one entry. By rounding it may have almost twice as many."""
_POLLS_A_WINDOW = 200
"""Most polls by the first queued call per window: every 0.3 s with a window of a minute."""
_REDIS_TIMEOUT_S = 2.0
"""Longer than a busy event loop lags: queued calls can wait, and without Redis the process admits too much."""
_REDIS_AWAY_S = 5.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limits of a key with a model per window; None is unlimited."""

    requests: int | None = None
    tokens: int | None = None


@dataclass(slots=True)
class _CallQueue:
    """The queue of this process's calls with the same key and model."""

    limit: RateLimit
    turn: asyncio.Lock
    credit_tokens: float = 0.0
    """Tokens taken from the window and not used; negative: used and not taken."""
    settled_s: float = 0.0

    @property
    def unit_tokens(self) -> int:
        return max(1, (self.limit.tokens or 0) // _UNITS)


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for one request. Call `settle` when its usage is known."""

    profile: str
    _queue: _CallQueue | None = None
    _tokens: int = 0

    def settle(self, usage: TokenUsage) -> None:
        """Correct the estimate. Tokens read from the prompt cache do not count, as with the provider."""
        if self._queue is not None:
            self._queue.credit_tokens += self._tokens - (
                usage.input_tokens + usage.cache_write_tokens + usage.output_tokens
            )


class RateLimiter:
    """Admits requests at the operator's rate."""

    def __init__(
        self,
        limits: Mapping[str, RateLimit],
        *,
        window_s: int = 60,
        redis: Redis | None = None,
        key_prefix: str = "nova:limits",
        namespace: str = "anthropic",
    ) -> None:
        """Create the limiter. It connects at the first call.

        Args:
            limits: By model id; ``*`` applies to each other model separately.
            redis: The client whose connections are used; None limits only this process.
            key_prefix: Prefix of the Redis keys; each lives as long as the window.
            namespace: The provider.
        """
        self._limits = dict(limits)
        self._window_s = window_s
        self._namespace = namespace
        self._queues: dict[tuple[str, str], _CallQueue] = {}
        self._shared = None if redis is None else _shared(redis, key_prefix)
        self._own: MovingWindowRateLimiter | None = None
        self._link = RedisLink(
            timeout_s=_REDIS_TIMEOUT_S, away_s=_REDIS_AWAY_S, clock=time.monotonic, purpose="rate limit"
        )

    def limits(self, model: str) -> bool:
        """Return whether a model has a limit."""
        return model in self._limits or ANY_MODEL in self._limits

    async def take(self, profiles: Sequence[str], model: str, tokens: int) -> Grant:
        """Wait for permission to make one request; may be canceled while it waits.

        Args:
            profiles: The usable keys, in order of preference. The first that is available at once is taken; if none is,
                the call joins the first one's queue.
            tokens: Estimated tokens of the request.
        """
        for profile in profiles if len(profiles) > 1 else ():
            queue = self._queue(profile, model)
            if queue is None:
                return Grant(profile)
            if not queue.turn.locked():
                async with queue.turn:
                    if await self._draw(queue, profile, model, tokens, wait=False):
                        return Grant(profile, queue, tokens)
        queue = self._queue(profiles[0], model)
        if queue is None:
            return Grant(profiles[0])
        async with queue.turn:
            await self._draw(queue, profiles[0], model, tokens, wait=True)
        return Grant(profiles[0], queue, tokens)

    def _queue(self, profile: str, model: str) -> _CallQueue | None:
        limit = self._limits.get(model) or self._limits.get(ANY_MODEL)
        if limit is None:
            return None
        queue = self._queues.get((profile, model))
        if queue is None:
            queue = self._queues[profile, model] = _CallQueue(limit, asyncio.Lock())
        return queue

    async def _draw(self, queue: _CallQueue, profile: str, model: str, tokens: int, *, wait: bool) -> bool:
        if queue.limit.tokens is not None:
            units = self._units(queue, tokens)
            item = self._window(queue.limit.tokens // queue.unit_tokens)
            if units and not await self._hit(item, ("tokens", profile, model), units, wait=wait):
                return False
            queue.credit_tokens += units * queue.unit_tokens - tokens
        if queue.limit.requests is None:
            return True
        item = self._window(queue.limit.requests)
        let_through = False
        try:
            let_through = await self._hit(item, ("requests", profile, model), 1, wait=wait)
        finally:
            if not let_through:
                # Another key is used, or the turn was stopped: the tokens taken are available to the next call.
                queue.credit_tokens += tokens
        return let_through

    def _units(self, queue: _CallQueue, tokens: int) -> int:
        """Return how many units to take for `tokens`, given the credit or debt of earlier calls."""
        now_s = time.monotonic()
        if now_s - queue.settled_s > self._window_s:
            # The credit is from an expired window.
            queue.credit_tokens = 0.0
        queue.settled_s = now_s
        missing = tokens - queue.credit_tokens
        if missing <= 0:
            return 0
        # More than the whole window would never be admitted.
        return min(-(-int(missing) // queue.unit_tokens) or 1, (queue.limit.tokens or 0) // queue.unit_tokens)

    def _window(self, amount: int) -> RateLimitItemPerSecond:
        return RateLimitItemPerSecond(amount, multiples=self._window_s, namespace=self._namespace)

    async def _hit(self, item: RateLimitItemPerSecond, names: tuple[str, ...], cost: int, *, wait: bool) -> bool:
        while not await self._ask(lambda limiter: limiter.hit(item, *names, cost=cost)):
            if not wait:
                return False
            stats = await self._ask(lambda limiter: limiter.get_window_stats(item, *names))
            await asyncio.sleep(max(stats.reset_time - time.time(), self._window_s / _POLLS_A_WINDOW))
        return True

    async def _ask(self, question: Callable[[MovingWindowRateLimiter], Awaitable[_Answer]]) -> _Answer:
        shared = self._shared
        if shared is not None:
            answer = await self._link.ask(lambda: question(shared))
            if answer is not None:
                return answer[0]
        if self._own is None:
            # Created here, since its storage needs a running loop.
            self._own = MovingWindowRateLimiter(MemoryStorage())
        return await question(self._own)


def _shared(redis: Redis, key_prefix: str) -> MovingWindowRateLimiter:
    # It requires a URL, but does not use it: the connections are ours.
    options: dict[str, Any] = {"connection_pool": redis.connection_pool}
    storage = RedisStorage("async+redis://unused:6379", implementation="redispy", key_prefix=key_prefix, **options)
    return MovingWindowRateLimiter(storage)
