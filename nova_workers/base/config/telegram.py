"""The settings of the Telegram channel, with the evidence for each default."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from nova_workers.base.config.forms import BotToken, Host, Seconds, empty_is_unset
from nova_workers.base.config.sections import Section

_WebUrl = Annotated[str, Field(pattern=r"^https?://")]


class TelegramBotSettings(Section):
    """The bot of one agent."""

    token: BotToken
    users: tuple[int, ...] = ()
    """Ids of the people who may write; empty: those of the global bot."""
    deliveries_to: int | None = None
    """See `TelegramSettings.deliveries_to`; unset: that one."""


class TelegramSettings(Section):
    """The Telegram channel: a global bot, and bots of single agents."""

    token: Annotated[BotToken | None, BeforeValidator(empty_is_unset)] = None
    """The token of the global bot, through which people reach every agent."""
    users: tuple[int, ...] = ()
    """Ids of the people who may write, beside those who were paired."""
    pairing: bool = True
    """Whether a stranger who writes gets a code, by which an operator can permit it: `nova channels pair CODE`."""
    feedback: bool = True
    """Whether answers have two buttons by which people rate them."""
    agent: str = "nova"
    """The agent of new conversations with the global bot."""
    bots: dict[str, TelegramBotSettings] = Field(default_factory=dict[str, TelegramBotSettings])
    """Bots of single agents, by the agent's id."""
    deliveries_to: int | None = None
    """The chat for notifications, files, notes and questions of runs that no conversation started, such as those of
    triggers; unset: they stay in the inbox. A person's private chat has the id of the person."""
    base_url: _WebUrl = "https://api.telegram.org"
    """The address of the Bot API: another one for a server of your own."""
    webhook_url: _WebUrl | None = None
    """The public address that a proxy passes on to the channel; unset: the channel polls."""
    webhook_host: Host = "127.0.0.1"
    webhook_port: Annotated[int, Field(ge=0, le=65535)] = 8730

    lease_ttl_s: Annotated[Seconds, Field(le=600)] = 15.0
    """After a crash another process takes over when this has passed."""
