"""Keys of model providers that rest and models that fail, from the records that workers keep in Redis."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base import keys
from nova_workers.base.errors import Unavailable
from nova_workers.base.vocabulary import ProviderState, RestReason
from nova_workers.contracts.http.fleet import ProviderRest

_log = structlog.get_logger(__name__)

_DEADLINE_S = 1.0
_MOST_RESTS = 500
_MOST_CONVERSATIONS = 10
_REASONS: Mapping[str, RestReason] = {"auth": "auth", "rate_limit": "rate_limit"}


class _Record:
    """A cool-down of a key or the breaker of a model: the hash that `engines/resilience` writes with its scripts."""

    def __init__(self, key: str, fields: Mapping[bytes, bytes]) -> None:
        self.key = key
        self._fields = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}

    def text(self, name: str) -> str:
        return self._fields.get(name, "")

    def number(self, name: str) -> int:
        text = self.text(name).partition(".")[0]
        return int(text) if text.isdecimal() else 0

    @property
    def is_key(self) -> bool:
        return "profile" in self._fields

    @property
    def failed(self) -> str:
        """The Redis key of the conversations that the model failed."""
        return keys.model_failures(self.text("provider"), self.text("model"))

    def is_of(self, name: str) -> bool:
        return name in {self.text("provider"), self.text("model"), self.text("profile")}


async def provider_rests(redis: Redis) -> list[ProviderRest] | None:
    """Return the keys that rest and the models that failed conversations recently; None if Redis does not answer."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            now_ms, records = await _read(redis)
            breakers = [record for record in records if not record.is_key]
            failed = await _conversations(redis, breakers)
    except (RedisError, TimeoutError, OSError) as error:
        _log.warning("providers.redis_unavailable", outage="redis", error=str(error))
        return None
    rests = [_of_key(record, now_ms) for record in records if record.is_key]
    rests += [_of_model(record, failed[record.key], now_ms) for record in breakers]
    return sorted(
        (rest for rest in rests if rest is not None),
        key=lambda rest: (rest.state != "resting", rest.provider, rest.model or "", rest.profile or ""),
    )


async def clear_rests(redis: Redis, name: str | None) -> int:
    """Forget rests and failures: those of a provider, a model or a profile, or all. Return how many there were.

    Raises:
        Unavailable: Redis does not answer.
    """
    try:
        async with asyncio.timeout(_DEADLINE_S):
            _, records = await _read(redis)
            chosen = [record for record in records if name is None or record.is_of(name)]
            if chosen:
                names = [key for record in chosen for key in (record.key, *(() if record.is_key else (record.failed,)))]
                async with redis.pipeline(transaction=True) as pipe:
                    pipe.delete(*names)
                    pipe.zrem(keys.model_rests(), *(record.key for record in chosen))
                    await pipe.execute()
    except (RedisError, TimeoutError, OSError) as error:
        raise Unavailable(
            f"Redis does not answer ({type(error).__name__}), so it is not known whether the rests were cleared. Try "
            "again.",
            server="redis",
        ) from error
    return len(chosen)


async def _read(redis: Redis) -> tuple[int, list[_Record]]:
    """Return Redis's time, by which all times of the records go, and the records."""
    seconds, microseconds = await redis.time()
    now_ms = seconds * 1_000 + microseconds // 1_000
    index = cast(
        "list[bytes]",
        await redis.zrange(keys.model_rests(), f"({now_ms}", "+inf", byscore=True, offset=0, num=_MOST_RESTS),
    )
    async with redis.pipeline(transaction=False) as pipe:
        for key in index:
            pipe.hgetall(key)
        found = cast("list[dict[bytes, bytes]]", await pipe.execute())
    return now_ms, [_Record(key.decode(), fields) for key, fields in zip(index, found, strict=True) if fields]


async def _conversations(redis: Redis, breakers: Iterable[_Record]) -> dict[str, list[tuple[str, float]]]:
    """Return of each breaker the conversations that failed, the last first, with the time."""
    named = list(breakers)
    async with redis.pipeline(transaction=False) as pipe:
        for record in named:
            pipe.zrange(record.failed, 0, -1, desc=True, withscores=True)
        found = cast("list[list[tuple[bytes, float]]]", await pipe.execute())
    return {
        record.key: [(conversation.decode(errors="replace"), at_ms) for conversation, at_ms in failed]
        for record, failed in zip(named, found, strict=True)
    }


def _of_key(record: _Record, now_ms: int) -> ProviderRest | None:
    until_ms = record.number("until")
    if until_ms <= now_ms:
        return None
    return ProviderRest(
        provider=record.text("provider"),
        model=record.text("model") or None,
        profile=record.text("profile"),
        reason=_REASONS.get(record.text("reason"), "rate_limit"),
        state="resting",
        since=_time(record.number("since")),
        until=_time(until_ms),
        error=record.text("error") or None,
    )


def _of_model(record: _Record, failed: list[tuple[str, float]], now_ms: int) -> ProviderRest | None:
    if not failed:
        return None
    is_open, until_ms = now_ms < record.number("forget_at"), record.number("open_until")
    state: ProviderState = "answering" if not is_open else "resting" if now_ms < until_ms else "trying"
    answered_ms = record.number("answered_at")
    return ProviderRest(
        provider=record.text("provider"),
        model=record.text("model"),
        profile=None,
        reason="failures",
        state=state,
        since=_time(record.number("since") if is_open else round(failed[-1][1])),
        until=_time(until_ms) if state == "resting" else None,
        failures=sum(at_ms > answered_ms for _, at_ms in failed),
        conversations=[conversation for conversation, _ in failed[:_MOST_CONVERSATIONS]],
        error=record.text("error") or None,
    )


def _time(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1_000, UTC) if at_ms else None
