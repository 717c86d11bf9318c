"""Where the updates of a bot come from: long polling, or a webhook. An update is confirmed when the next is wanted."""

import asyncio
import hmac
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol

import structlog
from aiogram.methods import DeleteWebhook, GetUpdates, SetWebhook, TelegramMethod
from aiogram.types import Update as TelegramUpdate
from aiohttp import web
from pydantic import ValidationError

from nova_workers.base.errors import DeliveryFailed
from nova_workers.channels.port import Rests
from nova_workers.channels.telegram.api import BotApi, ConflictingPoller
from nova_workers.client.retry import Retry

_log = structlog.get_logger(__name__)

_ALLOWED = ["message", "callback_query"]
_POLL_S = 25
_PAUSES = Retry(base_s=0.5, max_s=30.0)
_MAX_BODY_BYTES = 1 << 20
_TAKEN_S = 50.0
"""Telegram repeats an update that is not confirmed in about a minute."""
_PROOF_HEADER = "X-Telegram-Bot-Api-Secret-Token"


class UpdateSource(Protocol):
    """The updates of one bot in order. An update that the consumer does not return from comes again."""

    def updates(self, api: BotApi, rests: Rests) -> AsyncGenerator[TelegramUpdate]:
        """Yield updates until canceled or closed.

        Args:
            api: The bot.
            rests: Reports pauses while Telegram does not answer, or refuses the bot.
        """
        ...


class Polling:
    """Asks Telegram for updates."""

    async def updates(self, api: BotApi, rests: Rests) -> AsyncGenerator[TelegramUpdate]:
        """See `UpdateSource.updates`."""
        await _insist(api, rests, DeleteWebhook(drop_pending_updates=False))
        offset: int | None = None
        failures = 0
        while True:
            ask = GetUpdates(offset=offset, timeout=_POLL_S, allowed_updates=_ALLOWED)
            try:
                batch = await api.updates(ask, timeout_s=_POLL_S + 15)
            except DeliveryFailed as error:
                failures += 1
                await pause_after(api, rests, error, failures)
                continue
            failures = 0
            rests.works()
            for raw in batch:
                yield raw
                # The next request confirms what is below the offset.
                offset = raw.update_id + 1


class Webhook:
    """Takes updates that Telegram sends to this process."""

    def __init__(self, url: str, secret: str) -> None:
        """Prepare a webhook.

        Args:
            url: The public address, which a proxy passes on to this process.
            secret: What Telegram sends along, as proof.
        """
        self._url = url
        self._secret = secret
        self._queue: asyncio.Queue[tuple[TelegramUpdate, asyncio.Future[bool]]] | None = None
        self._api: BotApi | None = None

    async def updates(self, api: BotApi, rests: Rests) -> AsyncGenerator[TelegramUpdate]:
        """See `UpdateSource.updates`."""
        # One connection at a time keeps the order of a chat.
        setting = SetWebhook(url=self._url, secret_token=self._secret, allowed_updates=_ALLOWED, max_connections=1)
        await _insist(api, rests, setting)
        queue: asyncio.Queue[tuple[TelegramUpdate, asyncio.Future[bool]]] = asyncio.Queue(100)
        self._queue, self._api = queue, api
        taken: asyncio.Future[bool] | None = None
        try:
            while True:
                raw, taken = await queue.get()
                yield raw
                _settle(taken, confirmed=True)
        finally:
            self._queue = self._api = None
            _settle(taken, confirmed=False)
            while not queue.empty():
                _settle(queue.get_nowait()[1], confirmed=False)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request: 200 once the fleet has the update; else Telegram sends it again."""
        given = request.headers.get(_PROOF_HEADER, "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._secret.encode()):
            _log.warning("telegram.webhook_refused", remote=request.remote)
            return web.Response(status=403)
        queue, api = self._queue, self._api
        if queue is None or api is None:
            # Another process serves the bot.
            return web.Response(status=503)
        try:
            raw = api.parse(await request.read())
        except ValidationError:
            return web.Response(status=400)
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_S):
                await queue.put((raw, taken))
                return web.Response(status=200 if await taken else 503)
        return web.Response(status=503)

    @staticmethod
    def application(webhooks: dict[str, "Webhook"]) -> web.Application:
        """Return the server of several webhooks, by path. Bodies are bounded."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        for path, webhook in webhooks.items():
            app.router.add_post(path, webhook.handle)
        return app


def _settle(taken: asyncio.Future[bool] | None, *, confirmed: bool) -> None:
    if taken is not None and not taken.done():
        taken.set_result(confirmed)


async def _insist(api: BotApi, rests: Rests, method: TelegramMethod[bool]) -> None:
    """Call a method until Telegram accepts it."""
    failures = 0
    while True:
        try:
            await api(method)
        except DeliveryFailed as error:
            failures += 1
            await pause_after(api, rests, error, failures)
        else:
            rests.works()
            return


async def pause_after(api: BotApi, rests: Rests, error: DeliveryFailed, failures: int) -> None:
    """Log, report and wait after a call that Telegram did not answer, or refused."""
    advice = ""
    if isinstance(error, ConflictingPoller):
        advice = "Another program polls this bot, or has set its webhook. Stop that, or make a bot of its own."
    elif error.response_status == 401:
        advice = "Telegram does not know the token. Copy it from BotFather again."
    _log.warning("telegram.away", bot_id=api.id, failures=failures, error=error.message, advice=advice)
    words = f"{error.message.rstrip('.')}. {advice}" if advice else error.message
    await rests.rest(words, error.retry_after_s or _PAUSES.delay_s(failures))
