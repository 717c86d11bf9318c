"""Notifications between processes over Redis pub/sub: hints to read state from Postgres sooner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, cast

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import CONTROL_CHANNEL, order_channel
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.validation import problem_of
from nova_workers.broker.notifier import Notifier
from nova_workers.contracts.runs import CancelReason
from nova_workers.domain.streams.rules.subscriber import PING_EVERY_S, Subscriber

_log = structlog.get_logger(__name__)

_RECONNECT_S = 0.5


class _CancelNotice(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["cancel"]
    run_ids: list[str]
    reason: CancelReason


class ControlChannel:
    """Notifies workers of cancel requests. The lease keeper finds a request within 10 s if its notification is lost."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._notifier = Notifier(redis)

    async def notify_cancel(self, run_ids: Sequence[str], reason: CancelReason) -> None:
        """Notify all workers that runs are to stop. Best effort: a Redis failure is logged, not raised."""
        if not run_ids:
            return
        payload = orjson.dumps({"type": "cancel", "run_ids": list(run_ids), "reason": reason})
        await self._notifier.publish(CONTROL_CHANNEL, payload, run_ids=list(run_ids))

    async def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for a work order. Best effort, too: they look at the ledger now and then."""
        await self._notifier.publish(order_channel(order_id), b"", order_id=order_id)

    async def listen(
        self,
        on_cancel: Callable[[str, CancelReason], object],
        on_missed: Callable[[], object],
        *,
        foreign: ForeignMessages,
        ping_every_s: float = PING_EVERY_S,
    ) -> None:
        """Receive notifications until canceled, reconnecting as needed.

        Args:
            on_cancel: Called with each run that is to stop.
            on_missed: Called after each connection: what was missed meanwhile is in the ledger.
            foreign: Notes what else is on the channel.
            ping_every_s: See `Subscriber`.
        """
        subscriber = Subscriber(self._redis, ping_every_s=ping_every_s)
        is_reported = False
        try:
            while True:
                try:
                    await subscriber.subscribe(CONTROL_CHANNEL)
                    is_reported = False
                    while True:
                        message = await subscriber.receive()
                        if message["type"] == "subscribe":
                            on_missed()
                        elif message["type"] == "message":
                            _on_message(cast(bytes, message["data"]), on_cancel, foreign)
                except RedisError as error:
                    if not is_reported:
                        _log.warning("control.redis_unavailable", outage="redis", error=str(error))
                    is_reported = True
                    await asyncio.sleep(_RECONNECT_S)
                except Exception:
                    _log.exception("control.failed")
                    await asyncio.sleep(_RECONNECT_S)
        finally:
            await subscriber.close()


def _on_message(payload: bytes, on_cancel: Callable[[str, CancelReason], object], foreign: ForeignMessages) -> None:
    try:
        notice = _CancelNotice.model_validate_json(payload)
    except ValidationError as error:
        foreign.drop("notification", "unreadable", size=len(payload), error=problem_of(error.errors()[0]))
        return
    for run_id in notice.run_ids:
        on_cancel(run_id, notice.reason)
