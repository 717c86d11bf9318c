"""One bot as an inbound channel: replies become messages, which are edited as they grow."""

import time
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog
from aiogram.methods import (
    AnswerCallbackQuery,
    EditMessageReplyMarkup,
    EditMessageText,
    SendChatAction,
    SendMessage,
)
from aiogram.types import InlineKeyboardMarkup, LinkPreviewOptions

from nova_workers.channels.journal import Journal
from nova_workers.channels.port import File, Origin, Reply, Update
from nova_workers.channels.telegram.api import BotApi, Refused
from nova_workers.channels.telegram.buttons import keyboard
from nova_workers.channels.telegram.files import MAX_UPLOAD_BYTES, Chat, fits_caption, send_as_document, send_file
from nova_workers.channels.telegram.intake import Intake, Pressed
from nova_workers.channels.telegram.rendering import split_markdown, to_html
from nova_workers.channels.telegram.sources import UpdateSource
from nova_workers.errors import DeliveryFailed

__all__ = ["TelegramChannel"]

_log = structlog.get_logger(__name__)

_EMPTY = "…"
_COURTESY_S = 5
"""Longest time of a call that only shows that something happens: the next update waits for it."""
_PARTIAL_CHARS = 3_000
_SHOWN_TOOLS = 5
_TOOL_MARKS = {"running": "⏳", "completed": "✓", "failed": "✗"}
_PRIVATE_EVERY_S = 1.0
_GROUP_EVERY_S = 3.2
"""Pauses between partial answers: Telegram admits about one message a second in a chat, and 20 a minute in a group."""
_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)


class TelegramChannel:
    """Implements `InboundChannel` for one bot.

    A message is sent empty, its id is recorded in the journal, and then it gets its text by an edit, which may be
    repeated. So a crash at any point repeats no text; it may leave an empty message.
    """

    streams = True

    def __init__(
        self, name: str, api: BotApi, journal: Journal, *, intake: Intake, source: UpdateSource, pressed: Pressed
    ) -> None:
        self.name = name
        self._api = api
        self._journal = journal
        self._intake = intake
        self._source = source
        self._pressed = pressed
        self._shown_at_s: dict[str, float] = {}

    async def updates(self) -> AsyncIterator[Update]:
        """See `InboundChannel.updates`. Telegram forgets an update when the next one is requested here."""
        async for raw in self._source.updates(self._api):
            update = await self._intake.read(raw)
            if update is not None:
                yield update

    async def deliver(self, reply: Reply) -> None:
        """See `InboundChannel.deliver`."""
        match reply.type:
            case "partial":
                await self._show_partial(reply)
            case "closed":
                for message_id in self._journal.messages(reply)[-1:]:
                    await self._remove_buttons(Chat.of(reply.conversation), int(message_id))
            case "failure":
                await self._write(reply, f"⚠️ {reply.text}", formatted=False)
            case "approval":
                # As it is: formatting could hide characters of what is permitted.
                await self._write(reply, f"🔐 {reply.text}", formatted=False)
            case "refusal" | "notice":
                await self._write(reply, reply.text, formatted=False)
            case "answer":
                self._shown_at_s.pop(reply.conversation, None)
                await self._write(reply, reply.text.strip() or "(The agent gave no text.)")
            case _ if reply.file is not None:
                await self._send_file(reply, reply.file)
            case _:
                await self._write(reply, reply.text)

    async def done(self, update: Origin) -> None:
        """See `InboundChannel.done`. A pressed button goes away; after a message the chat shows that the bot writes."""
        query = self._pressed.take(update.id)
        with suppress(DeliveryFailed):
            if query is None:
                chat = Chat.of(update.conversation)
                typing = SendChatAction(chat_id=chat.id, action="typing", message_thread_id=chat.topic)
                await self._api(typing, timeout_s=_COURTESY_S)
                return
            await self._api(AnswerCallbackQuery(callback_query_id=query.id), timeout_s=_COURTESY_S)
            if query.message is not None:
                await self._remove_buttons(Chat(query.message.chat.id, None), query.message.message_id)

    async def close(self) -> None:
        """See `InboundChannel.close`. The connections of the bot are its owner's."""

    async def _show_partial(self, reply: Reply) -> None:
        chat = Chat.of(reply.conversation)
        every_s = _PRIVATE_EVERY_S if chat.id > 0 else _GROUP_EVERY_S
        now_s = time.monotonic()
        if now_s < self._shown_at_s.get(reply.conversation, 0.0) + every_s:
            return
        text = reply.text if len(reply.text) <= _PARTIAL_CHARS else f"…{reply.text[-_PARTIAL_CHARS:]}"
        tools = [f"{_TOOL_MARKS[tool.status]} `{tool.name}`" for tool in reply.tools[-_SHOWN_TOOLS:]]
        words = "\n\n".join(part for part in (text.strip(), "  \n".join(tools)) if part)
        if words:
            self._shown_at_s[reply.conversation] = now_s
            try:
                await self._edit(chat, await self._message(reply, 0), words)
            except DeliveryFailed as error:
                self._shown_at_s[reply.conversation] = now_s + (error.retry_after_s or 0.0)
                raise

    async def _write(self, reply: Reply, text: str, *, formatted: bool = True) -> None:
        """Write a text into as many messages as it needs; the last one gets the buttons."""
        chat = Chat.of(reply.conversation)
        parts = split_markdown(text) or [_EMPTY]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            message_id, buttons = await self._message(reply, number), keyboard(reply) if is_last else None
            await self._edit(chat, message_id, part, buttons, formatted=formatted)

    async def _message(self, reply: Reply, number: int) -> int:
        """Return the message for a part of a reply; sent empty if there is none yet."""
        sent = self._journal.messages(reply)
        if number < len(sent):
            return int(sent[number])
        chat = Chat.of(reply.conversation)
        message = await self._api(SendMessage(chat_id=chat.id, text=_EMPTY, message_thread_id=chat.topic))
        await self._journal.add_message(reply, str(message.message_id))
        return message.message_id

    async def _edit(
        self,
        chat: Chat,
        message_id: int,
        text: str,
        buttons: InlineKeyboardMarkup | None = None,
        *,
        formatted: bool = True,
    ) -> None:
        """Give a message its text, formatted if Telegram accepts that. Repeating it changes nothing."""
        html = to_html(text) if formatted else ""
        plain = EditMessageText(
            chat_id=chat.id, message_id=message_id, text=text, reply_markup=buttons, link_preview_options=_NO_PREVIEW
        )
        if html:
            try:
                await self._api(plain.model_copy(update={"text": html, "parse_mode": "HTML"}))
            except Refused as error:
                if "not modified" in error.message:
                    return
                _log.info("telegram.formatting_refused", channel=self.name, error=error.message)
            else:
                return
        await self._edit_plain(chat, plain)

    async def _edit_plain(self, chat: Chat, edit: EditMessageText) -> None:
        try:
            await self._api(edit)
        except Refused as error:
            if "not modified" in error.message:
                return
            if "message to edit not found" not in error.message and "can't be edited" not in error.message:
                raise
            # A person has deleted it.
            buttons = edit.reply_markup
            await self._api(
                SendMessage(
                    chat_id=chat.id, text=edit.text or _EMPTY, message_thread_id=chat.topic, reply_markup=buttons
                )
            )

    async def _remove_buttons(self, chat: Chat, message_id: int) -> None:
        with suppress(Refused):
            await self._api(EditMessageReplyMarkup(chat_id=chat.id, message_id=message_id))

    async def _send_file(self, reply: Reply, file: File) -> None:
        """Send a file. Between sending and recording a crash repeats it."""
        chat = Chat.of(reply.conversation)
        if file.size_bytes > MAX_UPLOAD_BYTES:
            words = f"{file.name} has {file.size_bytes} bytes; Telegram takes 50 MB. `nova files get {file.id}` has it."
            await self._write(reply, f"{reply.text}\n\n{words}".strip())
            return
        caption = reply.text if reply.text and fits_caption(reply.text) else None
        texts = split_markdown(reply.text) if caption is None else []
        if texts:
            await self._write(reply, reply.text)
        if len(self._journal.messages(reply)) > len(texts):
            return
        try:
            message = await self._api(send_file(chat, file, caption))
        except Refused:
            # Such as a picture with odd dimensions.
            message = await self._api(send_as_document(chat, file, caption))
        await self._journal.add_message(reply, str(message.message_id))
