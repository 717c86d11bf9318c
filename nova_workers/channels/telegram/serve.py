"""Serves the bots that the settings name, each by one process of several."""

import asyncio
import hashlib
import hmac
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
from aiogram.methods import GetMe, SetMyCommands
from aiogram.types import BotCommand
from aiohttp import web
from pydantic import SecretStr

from nova_workers.base.config import AudioSettings, Settings
from nova_workers.base.config.telegram import TelegramSettings
from nova_workers.base.errors import (
    ConfigurationError,
    DeliveryFailed,
)
from nova_workers.base.stopping import stop_tasks
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.delivering import until_answered
from nova_workers.channels.inbox import Home, InboxFeed
from nova_workers.channels.journal import Journal
from nova_workers.channels.pairing import Pairing
from nova_workers.channels.relay import Relay
from nova_workers.channels.serving import PATIENCE, serve_exclusively
from nova_workers.channels.telegram.api import BotApi
from nova_workers.channels.telegram.channel import TelegramChannel
from nova_workers.channels.telegram.intake import Intake, Pressed
from nova_workers.channels.telegram.media import MediaReader
from nova_workers.channels.telegram.sources import Polling, UpdateSource, Webhook, pause_after
from nova_workers.client.client import NovaClient

_log = structlog.get_logger(__name__)

_COMMANDS = [
    BotCommand(command="new", description="Begin a new conversation"),
    BotCommand(command="agents", description="Choose an agent"),
    BotCommand(command="model", description="Show or change the model"),
    BotCommand(command="status", description="What happens now"),
    BotCommand(command="usage", description="Tokens and cost of this conversation"),
    BotCommand(command="stop", description="End what runs"),
    BotCommand(command="reset", description="End what runs, and begin again"),
    BotCommand(command="help", description="How this works"),
]


@dataclass(frozen=True, slots=True)
class _Bot:
    """One bot of the settings."""

    channel: str
    agent_id: str
    token: SecretStr
    users: tuple[int, ...]
    home: Home
    may_choose_agents: bool


async def serve_telegram(client: NovaClient, settings: Settings) -> None:
    """Serve every configured bot until canceled.

    Raises:
        ConfigurationError: No bot is configured, or two have the same token.
        Unauthenticated: The API does not know the key.
        Forbidden: The key lacks the scope `runs` or `channels`.
    """
    bots = _configured(settings)
    # A key that is not valid shows at once.
    await until_answered(lambda: client.threads.list(limit=1), "telegram", PATIENCE)
    telegram = settings.telegram
    async with AsyncExitStack() as stack:
        webhooks: dict[str, Webhook] = {}
        tasks: list[asyncio.Task[None]] = []
        stack.push_async_callback(stop_tasks, tasks)
        for bot in bots:
            try:
                api = BotApi(bot.token, telegram.base_url)
            except ConfigurationError as error:
                if len(bots) == 1:
                    raise
                # The others are served.
                _log.error("telegram.bot_left_out", channel=bot.channel, error=error.message)
                continue
            stack.push_async_callback(api.close)
            source: UpdateSource = Polling()
            if telegram.webhook_url is not None:
                url = f"{telegram.webhook_url.rstrip('/')}/{bot.channel}"
                source = webhooks[urlsplit(url).path] = Webhook(url, _secret(bot.token))
            journal = Journal(client, f"channel:telegram:{api.id}", ttl_s=telegram.lease_ttl_s)
            served = _ServedBot(client, bot, api, journal, source=source, audio=settings.audio, telegram=telegram)
            tasks.append(asyncio.create_task(served.serve(), name=bot.channel))
        if webhooks:
            await _listen(stack, webhooks, telegram.webhook_host, telegram.webhook_port)
        await asyncio.gather(*tasks)


class _ServedBot:
    """One bot: waits for its lease, serves it while the lease lasts, and begins again."""

    def __init__(
        self,
        client: NovaClient,
        bot: _Bot,
        api: BotApi,
        journal: Journal,
        *,
        source: UpdateSource,
        audio: AudioSettings,
        telegram: TelegramSettings,
    ) -> None:
        self._telegram = telegram
        self._client = client
        self._bot = bot
        self._api = api
        self._journal = journal
        self._source = source
        self._audio = audio

    async def serve(self) -> None:
        await serve_exclusively(self._journal, self._bot.channel, self._relay)

    async def _relay(self) -> None:
        username = await self._username()
        allowed, pressed = AllowList([str(user) for user in self._bot.users]), Pressed()
        pairing = Pairing(self._client, self._bot.channel, allowed) if self._telegram.pairing else None
        media = MediaReader(self._api, self._audio)
        intake = Intake(self._api, username, allowed, media=media, pressed=pressed, pairing=pairing)
        channel = TelegramChannel(
            self._bot.channel,
            self._api,
            self._journal,
            intake=intake,
            source=self._source,
            pressed=pressed,
            rates=self._telegram.feedback,
        )
        relay = Relay(
            self._client,
            channel,
            agent_id=self._bot.agent_id,
            senders=allowed,
            patience=PATIENCE,
            journal=self._journal,
            inbox=InboxFeed(self._client, self._journal, self._bot.channel, self._bot.home),
            may_choose_agents=self._bot.may_choose_agents,
            hidden_agents=self._bot.home.but_agents,
        )
        await relay.run()

    async def _username(self) -> str:
        """Return the bot's name, once Telegram answers."""
        failures = 0
        while True:
            try:
                me = await self._api(GetMe())
            except DeliveryFailed as error:
                failures += 1
                await pause_after(self._api, self._journal, error, failures)
            else:
                self._journal.works()
                with suppress(DeliveryFailed):
                    await self._api(SetMyCommands(commands=_COMMANDS))
                _log.info("telegram.serving", channel=self._bot.channel, bot=me.username, users=len(self._bot.users))
                return me.username or ""


def _configured(settings: Settings) -> list[_Bot]:
    telegram = settings.telegram
    bots: list[_Bot] = []
    if telegram.token is not None:
        home = Home(_text(telegram.deliveries_to), None, frozenset(telegram.bots))
        bots.append(_Bot("telegram", telegram.agent, telegram.token, telegram.users, home, True))
    for agent_id, own in telegram.bots.items():
        users = own.users or telegram.users
        home = Home(_text(own.deliveries_to or telegram.deliveries_to), agent_id)
        bots.append(_Bot(f"telegram-{agent_id}", agent_id, own.token, users, home, False))
    if not bots:
        raise ConfigurationError(
            "No Telegram bot is configured. Set NOVA_TELEGRAM__TOKEN to the token that BotFather gave you, and "
            "NOVA_TELEGRAM__USERS to the ids of the people who may write, such as [1234567]."
        )
    if len({bot.token.get_secret_value() for bot in bots}) < len(bots):
        raise ConfigurationError("Two Telegram bots have the same token. Each agent's bot needs one of its own.")
    return bots


def _secret(token: SecretStr) -> str:
    """Return the secret of a bot's webhook: the same in every process, and no key to the token."""
    return hmac.digest(token.get_secret_value().encode(), b"nova webhook", hashlib.sha256).hex()


def _text(chat: int | None) -> str | None:
    return None if chat is None else str(chat)


async def _listen(stack: AsyncExitStack, webhooks: dict[str, Webhook], host: str, port: int) -> None:
    runner = web.AppRunner(Webhook.application(webhooks), access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise ConfigurationError(
            f"{host}, port {port}, cannot be listened on: {error.strerror or error}. Set NOVA_TELEGRAM__WEBHOOK_PORT."
        ) from error
    _log.info("telegram.webhook_listens", host=host, port=port)
