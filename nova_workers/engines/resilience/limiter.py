"""The provider's rate limit, kept by all workers together: a call that is over it stands in line.

The window is exact (`limits`' moving window): in no window are more requests let through than allowed. Tokens are drawn
from a second window in units of a thousandth of the limit, since the window stores an entry a unit. They are estimated
before a call and corrected after it: what was estimated too high or too low is settled with this process's next call.

A refused call waits. In a process the calls of one key and model stand in a line, and only the first asks Redis, so a
fleet that is over its limit asks as often as it has workers, not as it has turns.
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

__all__ = ["ANY_MODEL", "Grant", "RateLimit", "RateLimiter"]

_Answer = TypeVar("_Answer")

ANY_MODEL = "*"
_UNITS = 1000
"""Entries that a window of tokens has at most."""
_POLLS_A_WINDOW = 200
"""How often the first in line asks at the most: 0.3 s with a window of a minute."""
_REDIS_TIMEOUT_S = 2.0
"""Longer than the loop of a busy process lags: whoever stands in line has time, and alone it lets too much through."""
_REDIS_AWAY_S = 5.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a key may do with a model in one window; None is no limit."""

    requests: int | None = None
    tokens: int | None = None


@dataclass(slots=True)
class _Line:
    """The calls of this process that want the same key and model."""

    limit: RateLimit
    turn: asyncio.Lock
    credit_tokens: float = 0.0
    """Tokens that were drawn and not used; below zero, used and not drawn."""
    settled_s: float = 0.0

    @property
    def unit_tokens(self) -> int:
        return max(1, (self.limit.tokens or 0) // _UNITS)


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to make one request. `settle` it when it is known what it used."""

    profile: str
    _line: _Line | None = None
    _tokens: int = 0

    def settle(self, usage: TokenUsage) -> None:
        """Correct the estimate. What the prompt cache gave does not count, as the provider reckons."""
        if self._line is not None:
            self._line.credit_tokens += self._tokens - (
                usage.input_tokens + usage.cache_write_tokens + usage.output_tokens
            )


class RateLimiter:
    """Lets requests through at the rate that the operator gave."""

    def __init__(
        self,
        limits: Mapping[str, RateLimit],
        *,
        window_s: int = 60,
        redis: Redis | None = None,
        key_prefix: str = "nova:limits",
        namespace: str = "anthropic",
    ) -> None:
        """Build the limiter. It connects at the first call.

        Args:
            limits: By model id; ``*`` is for models that are not named, each by itself.
            window_s: The window.
            redis: Whose connections to use; None limits this process alone.
            key_prefix: Of the keys; each lives as long as the window.
            namespace: The provider.
        """
        self._limits = dict(limits)
        self._window_s = window_s
        self._namespace = namespace
        self._lines: dict[tuple[str, str], _Line] = {}
        self._shared = None if redis is None else _shared(redis, key_prefix)
        self._own: MovingWindowRateLimiter | None = None
        self._link = RedisLink(
            timeout_s=_REDIS_TIMEOUT_S, away_s=_REDIS_AWAY_S, clock=time.monotonic, purpose="rate limit"
        )

    def limits(self, model: str) -> bool:
        """Whether a model has a limit at all."""
        return model in self._limits or ANY_MODEL in self._limits

    async def take(self, profiles: Sequence[str], model: str, tokens: int) -> Grant:
        """Wait for leave to make one request; may be cancelled while it waits.

        Args:
            profiles: The keys that will do, in order of preference. The first that is free at once is taken; if none
                is, the call stands in the first one's line.
            model: The model.
            tokens: What the request will use, estimated.
        """
        for profile in profiles if len(profiles) > 1 else ():
            line = self._line(profile, model)
            if line is None:
                return Grant(profile)
            if not line.turn.locked():
                async with line.turn:
                    if await self._draw(line, profile, model, tokens, wait=False):
                        return Grant(profile, line, tokens)
        line = self._line(profiles[0], model)
        if line is None:
            return Grant(profiles[0])
        async with line.turn:
            await self._draw(line, profiles[0], model, tokens, wait=True)
        return Grant(profiles[0], line, tokens)

    def _line(self, profile: str, model: str) -> _Line | None:
        limit = self._limits.get(model) or self._limits.get(ANY_MODEL)
        if limit is None:
            return None
        line = self._lines.get((profile, model))
        if line is None:
            line = self._lines[profile, model] = _Line(limit, asyncio.Lock())
        return line

    async def _draw(self, line: _Line, profile: str, model: str, tokens: int, *, wait: bool) -> bool:
        if line.limit.tokens is not None:
            units = self._units(line, tokens)
            item = self._window(line.limit.tokens // line.unit_tokens)
            if units and not await self._hit(item, ("tokens", profile, model), units, wait=wait):
                return False
            line.credit_tokens += units * line.unit_tokens - tokens
        if line.limit.requests is None:
            return True
        item = self._window(line.limit.requests)
        let_through = False
        try:
            let_through = await self._hit(item, ("requests", profile, model), 1, wait=wait)
        finally:
            if not let_through:
                # Another key is asked instead, or the turn was stopped: what was drawn is there for the next call.
                line.credit_tokens += tokens
        return let_through

    def _units(self, line: _Line, tokens: int) -> int:
        """Return how many units to draw for `tokens`, given what is left of or missing from earlier ones."""
        now_s = time.monotonic()
        if now_s - line.settled_s > self._window_s:
            # The window has forgotten what this was about.
            line.credit_tokens = 0.0
        line.settled_s = now_s
        missing = tokens - line.credit_tokens
        if missing <= 0:
            return 0
        # More than the whole window would never be let through.
        return min(-(-int(missing) // line.unit_tokens) or 1, (line.limit.tokens or 0) // line.unit_tokens)

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
            told = await self._link.ask(lambda: question(shared))
            if told is not None:
                return told[0]
        if self._own is None:
            # Built here since its storage wants a running loop.
            self._own = MovingWindowRateLimiter(MemoryStorage())
        return await question(self._own)


def _shared(redis: Redis, key_prefix: str) -> MovingWindowRateLimiter:
    # It wants a URL, and does not look at it: the connections are ours.
    options: dict[str, Any] = {"connection_pool": redis.connection_pool}
    storage = RedisStorage("async+redis://unused:6379", implementation="redispy", key_prefix=key_prefix, **options)
    return MovingWindowRateLimiter(storage)
