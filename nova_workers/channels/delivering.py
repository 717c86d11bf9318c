"""Delivers replies to a channel with patience, and waits for an API that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from nova_workers.base.errors import DeliveryFailed, NotFound, TooManyRequests, Unavailable
from nova_workers.channels.port import File, InboundChannel, Reply
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry

_log = structlog.get_logger(__name__)

T = TypeVar("T")


async def until_answered(request: Callable[[], Awaitable[T]], channel: str, patience: Retry) -> T:
    """Repeat an idempotent request until the API answers it."""
    failures = 0
    while True:
        try:
            return await request()
        except (Unavailable, TooManyRequests) as error:
            failures += 1
            await wait_for_api(failures, error, channel, patience)


async def wait_for_api(failures: int, error: Unavailable | TooManyRequests, channel: str, patience: Retry) -> None:
    """Wait after a request that the API did not answer."""
    _log.warning("channel.api_away", outage="api", channel=channel, failures=failures, error=error.message)
    await asyncio.sleep(patience.delay_s(failures))


class Deliverer:
    """The way of replies into one channel."""

    def __init__(self, client: NovaClient, channel: InboundChannel, patience: Retry) -> None:
        self._client = client
        self._channel = channel
        self._patience = patience

    @property
    def streams(self) -> bool:
        """Whether the channel shows partial answers."""
        return self._channel.streams

    async def show(self, reply: Reply) -> None:
        """Deliver a reply that another one will replace, or that is worth one attempt only."""
        try:
            await self._channel.deliver(reply)
        except DeliveryFailed as error:
            _log.debug("channel.partial_not_delivered", channel=self._channel.name, error=error.message)

    async def deliver(self, reply: Reply) -> bool:
        """Deliver a reply, with several attempts. Return whether the channel has it, or refuses it for good."""
        if reply.file is not None and reply.file.size_bytes <= self._channel.max_file_bytes:
            reply = await self._with_content(reply, reply.file)
        failures = 0
        while True:
            try:
                await self._channel.deliver(reply)
            except DeliveryFailed as error:
                failures += 1
                about = {"channel": self._channel.name, "reply_id": reply.id, "error": error.message}
                if not error.retryable or failures >= self._patience.attempts:
                    _log.error("channel.reply_not_delivered", failures=failures, **about)
                    return not error.retryable
                _log.warning("channel.delivery_retried", failures=failures, **about)
                await asyncio.sleep(error.retry_after_s or self._patience.delay_s(failures))
            else:
                return True

    async def answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent request until the API answers it."""
        return await until_answered(request, self._channel.name, self._patience)

    async def pause(self, failures: int, error: Unavailable | TooManyRequests) -> None:
        """Wait after a request that the API did not answer."""
        await wait_for_api(failures, error, self._channel.name, self._patience)

    async def _with_content(self, reply: Reply, file: File) -> Reply:
        try:
            content = await self.answered(lambda: self._client.files.read(file.id))
        except NotFound:
            return reply.model_copy(update={"file": None, "text": f"{reply.text}\n(The file was deleted.)".strip()})
        return reply.model_copy(update={"file": file.model_copy(update={"content": content})})
