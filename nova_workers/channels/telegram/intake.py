"""Reads what Telegram sends: messages, commands and pressed buttons of people who may write."""

import re
from contextlib import suppress
from typing import Any, Final, get_args

import structlog
from aiogram.methods import AnswerCallbackQuery, SendMessage
from aiogram.types import CallbackQuery, Message, User
from aiogram.types import Update as TelegramUpdate

from nova_workers.base.errors import DeliveryFailed, InvalidInput
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.pairing import Pairing
from nova_workers.channels.port import Command, Update
from nova_workers.channels.telegram.api import BotApi
from nova_workers.channels.telegram.buttons import read_press, reply_target
from nova_workers.channels.telegram.media import MediaReader

_log = structlog.get_logger(__name__)

_COMMAND: Final = re.compile(r"/([a-z_]{1,32})(?:@([A-Za-z0-9_]+))?(?:\s+(.*))?\Z", re.DOTALL)
_COMMANDS: Final[dict[str, Command]] = {**{name: name for name in get_args(Command)}, "start": "help"}
_KEPT_PRESSES: Final = 200
_UNSUPPORTED = "This kind of message cannot be taken. Send text, a photo, a document or a voice message."
_UNREADABLE = "This message could not be read, by a fault of this bot. Send it again, or in another form."


class Pressed:
    """Buttons that were pressed lately, by the id of their update."""

    def __init__(self) -> None:
        self._queries: dict[str, CallbackQuery] = {}

    def add(self, update_id: str, query: CallbackQuery) -> None:
        """Remember a pressed button, instead of the oldest one if there are many."""
        self._queries[update_id] = query
        if len(self._queries) > _KEPT_PRESSES:
            del self._queries[next(iter(self._queries))]

    def get(self, update_id: str) -> CallbackQuery | None:
        """Return the button of an update; None if it was pressed long ago, or before this process."""
        return self._queries.get(update_id)


class Intake:
    """Makes updates of the port from those of one bot."""

    def __init__(
        self,
        api: BotApi,
        username: str,
        allowed: AllowList,
        *,
        media: MediaReader,
        pressed: Pressed,
        pairing: Pairing | None,
    ) -> None:
        """Prepare it; without `pairing` strangers get no code."""
        self._api = api
        self._username = username.lower()
        self._allowed = allowed
        self._media = media
        self._pressed = pressed
        self._pairing = pairing

    async def read(self, raw: TelegramUpdate) -> Update | None:
        """Return an update for an agent; None if nothing is to be submitted. A stranger's files are not fetched."""
        update_id = f"{self._api.id}:{raw.update_id}"
        if raw.message is not None:
            return await self._message(update_id, raw.message)
        if raw.callback_query is not None:
            return await self._press(update_id, raw.callback_query)
        return None

    def unreadable(self, raw: TelegramUpdate) -> Update | None:
        """Return the refusal of an update that `read` failed on; None if it is no message of a permitted person."""
        message = raw.message
        if message is None or message.from_user is None or not self._allowed.permits(str(message.from_user.id)):
            return None
        return Update(**_origin(f"{self._api.id}:{raw.update_id}", message, message.from_user), refusal=_UNREADABLE)

    async def _message(self, update_id: str, message: Message) -> Update | None:
        if message.from_user is None or message.from_user.is_bot:
            return None
        origin = _origin(update_id, message, message.from_user)
        is_private = message.chat.type == "private"
        code = await self._admit(message.from_user, ask=is_private)
        if not self._allowed.permits(origin["sender"]):
            await self._refuse_stranger(message, origin["sender"], code)
            return None
        text = message.text or message.caption or ""
        if (command := _COMMAND.match(text)) is not None:
            return self._command(origin, command, is_private=is_private)
        return await self._content(origin, message, text)

    def _command(self, origin: dict[str, Any], command: re.Match[str], *, is_private: bool) -> Update | None:
        """Return a command; None if it is for another bot of the chat."""
        name, to_bot, argument = command.groups()
        if to_bot is not None and to_bot.lower() != self._username:
            return None
        if name in _COMMANDS:
            return Update(**origin, command=_COMMANDS[name], text=argument or "")
        return Update(**origin, command="help", text=name) if is_private or to_bot is not None else None

    async def _content(self, origin: dict[str, Any], message: Message, text: str) -> Update | None:
        try:
            spoken = await self._media.transcript(message)
            attachment = await self._media.attachment(message)
        except InvalidInput as error:
            return Update(**origin, refusal=error.message)
        text = "\n\n".join(part for part in (text, spoken or "") if part.strip())
        attachments = () if attachment is None else (attachment,)
        if not text and not attachments:
            # Service messages, such as that a person joined, have no content either.
            is_private = message.chat.type == "private"
            return Update(**origin, refusal=_UNSUPPORTED) if is_private else None
        asked = message.reply_to_message
        question = None if asked is None else reply_target(asked.reply_markup)
        if question is None:
            return Update(**origin, text=text, attachments=attachments, quote=_quoted(message))
        return Update(**origin, text=text, attachments=attachments, run_id=question.run_id, wait_id=question.wait_id)

    async def _press(self, update_id: str, query: CallbackQuery) -> Update | None:
        press, sender = read_press(query.data), str(query.from_user.id)
        await self._admit(query.from_user, ask=False)
        if not self._allowed.permits(sender):
            _log.warning("channel.sender_refused", sender=sender)
            await self._toast(query, "You may not use this bot.", alert=True)
            return None
        if press is None or query.message is None:
            await self._toast(query, "This button is not known any more.")
            return None
        if press.wait_id and press.choice is None:
            await self._toast(query, "Reply to this message with your answer.", alert=True)
            return None
        self._pressed.add(update_id, query)
        topic = query.message if isinstance(query.message, Message) else None
        conversation = str(query.message.chat.id) if topic is None else _conversation(topic)
        if press.command is not None:
            at: dict[str, Any] = {"id": update_id, "conversation": conversation, "sender": sender}
            return Update(**at, command=press.command, text=press.argument)
        return Update(
            id=update_id,
            conversation=conversation,
            sender=sender,
            run_id=press.run_id,
            wait_id=press.wait_id or None,
            choice=press.choice,
            rating=press.rating,
        )

    async def _admit(self, person: User, *, ask: bool) -> str | None:
        """Let the allow-list permit a person that is paired. Return a new code for one that is not."""
        if self._pairing is None or self._allowed.permits(str(person.id)):
            return None
        return await self._pairing.admit(str(person.id), person.full_name, ask=ask)

    async def _refuse_stranger(self, message: Message, sender: str, code: str | None) -> None:
        _log.warning("channel.sender_refused", sender=sender, asked_to_pair=code is not None)
        if message.chat.type != "private" or not (self._allowed.should_refuse(sender) or code is not None):
            return
        words = f"You may not write to this bot. Your user id is {sender}: its operator can permit it."
        if code is not None:
            words += f" Give this code to the operator within an hour:\n\n{code[:4]}-{code[4:]}"
        with suppress(DeliveryFailed):
            await self._api(SendMessage(chat_id=message.chat.id, text=words))

    async def _toast(self, query: CallbackQuery, words: str, *, alert: bool = False) -> None:
        with suppress(DeliveryFailed):
            await self._api(AnswerCallbackQuery(callback_query_id=query.id, text=words, show_alert=alert))


def _origin(update_id: str, message: Message, sender: User) -> dict[str, Any]:
    return {"id": update_id, "conversation": _conversation(message), "sender": str(sender.id)}


def _quoted(message: Message) -> str | None:
    """Return the text that a message is a reply to: the marked part of it, if there is one."""
    if message.quote is not None:
        return message.quote.text
    asked = message.reply_to_message
    return None if asked is None else asked.text or asked.caption


def _conversation(message: Message) -> str:
    """Return the conversation of a message: its chat, and in a forum its topic."""
    if message.is_topic_message and message.message_thread_id is not None:
        return f"{message.chat.id}/{message.message_thread_id}"
    return str(message.chat.id)
