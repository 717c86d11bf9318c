"""One bot as an inbound channel: replies become messages, which are edited as they grow."""

import html
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial

import structlog
from aiogram.methods import (
    AnswerCallbackQuery,
    DeleteMessage,
    EditMessageMedia,
    EditMessageReplyMarkup,
    EditMessageText,
    SendChatAction,
    SendMessage,
)
from aiogram.types import InlineKeyboardMarkup, LinkPreviewOptions, Message
from aiogram.types import Update as TelegramUpdate

from nova_workers.base.errors import DeliveryFailed
from nova_workers.channels.journal import Journal
from nova_workers.channels.port import FIRST_CHARS, File, Origin, Reply, Update
from nova_workers.channels.telegram.api import BotApi, Refused, is_gone
from nova_workers.channels.telegram.buttons import keyboard, label_of, read_press, thumbs
from nova_workers.channels.telegram.files import (
    MAX_UPLOAD_BYTES,
    Chat,
    fits_caption,
    is_voice,
    media_of,
    send_voice,
    upload_s,
)
from nova_workers.channels.telegram.intake import Intake, Pressed
from nova_workers.channels.telegram.rendering import first_words, split_markdown, to_html
from nova_workers.channels.telegram.sources import UpdateSource

_log = structlog.get_logger(__name__)

_EMPTY = "…"
_FIRST_WORDS_CHARS = 80
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

    A message is sent with its first words, which a phone announces; its id is recorded in the journal, and then it gets
    its text by an edit, which may be repeated. So a crash at any point repeats no text; it may leave the first words.
    """

    streams = True
    max_file_bytes = MAX_UPLOAD_BYTES

    def __init__(
        self,
        name: str,
        api: BotApi,
        journal: Journal,
        *,
        intake: Intake,
        source: UpdateSource,
        pressed: Pressed,
        rates: bool = True,
    ) -> None:
        """Prepare it; with `rates` answers have buttons by which people rate them."""
        self.name = name
        self._api = api
        self._journal = journal
        self._intake = intake
        self._source = source
        self._pressed = pressed
        self._rates = rates
        self._shown_at_s: dict[int, float] = {}
        self._incoming: AsyncGenerator[TelegramUpdate] | None = None

    async def updates(self) -> AsyncIterator[Update]:
        """See `InboundChannel.updates`. Telegram forgets an update when the next one is requested here."""
        self._incoming = self._source.updates(self._api, self._journal)
        async for raw in self._incoming:
            try:
                update = await self._intake.read(raw)
            except Exception:
                # Of one update: it would come again, and stop the bot again.
                _log.exception("telegram.update_not_read", channel=self.name, update_id=raw.update_id)
                update = self._intake.unreadable(raw)
            if update is not None:
                yield update

    async def deliver(self, reply: Reply) -> None:
        """See `InboundChannel.deliver`."""
        match reply.type:
            case "partial":
                await self._show_partial(reply)
            case "chosen" | "rated":
                await (self._show_choice(reply) if reply.type == "chosen" else self._show_rating(reply))
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
                self._shown_at_s.pop(Chat.of(reply.conversation).id, None)
                await self._write(reply, reply.text.strip() or "(The agent gave no text.)")
            case _ if reply.file is not None:
                await self._send_file(reply, reply.file)
            case _:
                await self._write(reply, reply.text)

    async def done(self, update: Origin) -> None:
        """See `InboundChannel.done`. After a message the chat shows that the bot writes.

        A pressed button goes away, except those that rate an answer: a person may change their mind.
        """
        query = self._pressed.get(update.id)
        if query is None:
            chat = Chat.of(update.conversation)
            with suppress(DeliveryFailed):
                typing = SendChatAction(chat_id=chat.id, action="typing", message_thread_id=chat.topic)
                await self._api(typing, timeout_s=_COURTESY_S)
            return
        with suppress(DeliveryFailed):  # Telegram refuses it after a minute or so.
            await self._api(AnswerCallbackQuery(callback_query_id=query.id), timeout_s=_COURTESY_S)
        press = read_press(query.data)
        if query.message is not None and (press is None or press.rating is None):
            with suppress(DeliveryFailed):
                await self._remove_buttons(Chat(query.message.chat.id, None), query.message.message_id)

    async def close(self) -> None:
        """See `InboundChannel.close`. The connections of the bot are its owner's."""
        if self._incoming is not None:
            # Now, and not when it is collected: a webhook takes no more updates from here on.
            await self._incoming.aclose()

    async def _show_choice(self, reply: Reply) -> None:
        """Write below a question what was chosen, and in a group by whom. Its buttons are gone already."""
        query = self._pressed.get(reply.update_id)
        asked = None if query is None else query.message
        if query is None or not isinstance(asked, Message):
            return
        label = label_of(asked.reply_markup, query.data) or reply.text
        by = "" if asked.chat.type == "private" else f" ({query.from_user.full_name})"
        change = EditMessageText(
            chat_id=asked.chat.id,
            message_id=asked.message_id,
            text=f"{asked.html_text}\n\n<b>→ {html.escape(label + by, quote=False)}</b>",
            parse_mode="HTML",
            link_preview_options=_NO_PREVIEW,
        )
        # Telegram takes no longer text of a message that is full, and none of one that a person has deleted.
        with suppress(Refused):
            await self._api.edit(change)

    async def _show_rating(self, reply: Reply) -> None:
        """Mark the button below an answer that was pressed, in a group the latest."""
        query = self._pressed.get(reply.update_id)
        if query is None or query.message is None or reply.run_id is None:
            return
        change = EditMessageReplyMarkup(
            chat_id=query.message.chat.id,
            message_id=query.message.message_id,
            reply_markup=thumbs(reply.run_id, reply.rating),
        )
        # It shows this already, or a person has deleted it.
        with suppress(Refused):
            await self._api(change)

    async def _show_partial(self, reply: Reply) -> None:
        chat = Chat.of(reply.conversation)
        every_s = _PRIVATE_EVERY_S if chat.id > 0 else _GROUP_EVERY_S
        now_s = time.monotonic()
        if now_s < self._shown_at_s.get(chat.id, 0.0) + every_s:
            return
        text = reply.text if len(reply.text) <= _PARTIAL_CHARS else f"…{reply.text[-_PARTIAL_CHARS:]}"
        tools = [f"{_TOOL_MARKS[tool.status]} `{tool.name}`" for tool in reply.tools[-_SHOWN_TOOLS:]]
        words = "\n\n".join(part for part in (text.strip(), "  \n".join(tools)) if part)
        if words:
            self._shown_at_s[chat.id] = now_s
            begun = len(text) >= FIRST_CHARS or bool(self._journal.messages(reply))
            # What comes before has a message of its own, without a sound: phones announce the one with first words.
            shown = reply if begun else _progress(reply)
            try:
                # If a person has deleted the message, the answer comes in a new one at the end.
                await self._edit(
                    chat, await self._message(shown, 0, text if begun else words, is_silent=not begun), words
                )
                if begun:
                    await self._remove_progress(reply)
            except DeliveryFailed as error:
                self._shown_at_s[chat.id] = now_s + (error.retry_after_s or 0.0)
                raise

    async def _write(self, reply: Reply, text: str, *, formatted: bool = True) -> None:
        """Write a text into as many messages as it needs; the last one gets the buttons."""
        chat = Chat.of(reply.conversation)
        parts = split_markdown(text) or [_EMPTY]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            fill = partial(
                self._edit, chat, text=part, buttons=self._buttons(reply) if is_last else None, formatted=formatted
            )
            await self._fill(reply, number, part, fill)
        await self._remove_progress(reply)

    def _buttons(self, reply: Reply) -> InlineKeyboardMarkup | None:
        if reply.type == "answer" and reply.run_id is not None and self._rates:
            return thumbs(reply.run_id)
        return keyboard(reply)

    async def _message(self, reply: Reply, number: int, text: str, *, is_silent: bool = False) -> int:
        """Return the message for a part of a reply; sent with its first words if there is none yet."""
        sent = self._journal.messages(reply)
        if number < len(sent):
            return int(sent[number])
        # The further parts of a reply are not announced.
        message_id = await self._send(Chat.of(reply.conversation), text, is_silent=is_silent or number > 0)
        await self._journal.add_message(reply, str(message_id))
        return message_id

    async def _send(self, chat: Chat, text: str, *, is_silent: bool) -> int:
        words = SendMessage(
            chat_id=chat.id,
            text=first_words(text, _FIRST_WORDS_CHARS) + _EMPTY,
            message_thread_id=chat.topic,
            disable_notification=is_silent,
            link_preview_options=_NO_PREVIEW,
        )
        return (await self._api(words)).message_id

    async def _remove_progress(self, reply: Reply) -> None:
        """Remove the message that showed what a run did before its answer could be announced."""
        progress, chat = _progress(reply), Chat.of(reply.conversation)
        for message_id in self._journal.messages(progress):
            with suppress(DeliveryFailed):
                await self._api(DeleteMessage(chat_id=chat.id, message_id=int(message_id)), timeout_s=_COURTESY_S)
        await self._journal.drop_messages(progress)

    async def _fill(self, reply: Reply, number: int, text: str, fill: Callable[[int], Awaitable[None]]) -> None:
        """Give a part of a reply its content, by an edit that may be repeated."""
        message_id = await self._message(reply, number, text)
        try:
            await fill(message_id)
        except Refused as error:
            if not is_gone(error):
                raise
            # A person has deleted it.
            another_id = await self._send(Chat.of(reply.conversation), text, is_silent=True)
            await self._journal.replace_message(reply, str(message_id), str(another_id))
            await fill(another_id)

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
        marked_up = to_html(text) if formatted else ""
        plain = EditMessageText(
            chat_id=chat.id, message_id=message_id, text=text, reply_markup=buttons, link_preview_options=_NO_PREVIEW
        )
        if marked_up:
            try:
                await self._api.edit(plain.model_copy(update={"text": marked_up, "parse_mode": "HTML"}))
            except Refused as error:
                if is_gone(error):
                    raise
                _log.info("telegram.formatting_refused", channel=self.name, error=error.message)
            else:
                return
        await self._api.edit(plain)

    async def _remove_buttons(self, chat: Chat, message_id: int) -> None:
        with suppress(Refused):
            await self._api(EditMessageReplyMarkup(chat_id=chat.id, message_id=message_id))

    async def _send_file(self, reply: Reply, file: File) -> None:
        """Send a file, as texts are sent: it replaces the text of an empty message."""
        if file.size_bytes > MAX_UPLOAD_BYTES:
            words = f"{file.name} has {file.size_bytes} bytes; Telegram takes 50 MB. `nova files get {file.id}` has it."
            await self._write(reply, f"{reply.text}\n\n{words}".strip())
            return
        caption = reply.text if reply.text and fits_caption(reply.text) else None
        texts = split_markdown(reply.text) if caption is None else []
        if texts:
            await self._write(reply, reply.text)
        if not await self._send_voice(reply, file, caption, number=len(texts)):
            # Under an id of its own, since a message under the reply's own id may be the voice message.
            shown = reply.model_copy(update={"id": f"{reply.id}:file"})
            await self._fill(shown, 0, caption or file.name, partial(self._put_file, reply, file, caption))

    async def _send_voice(self, reply: Reply, file: File, caption: str | None, *, number: int) -> bool:
        """Send a recording as a voice message. No other message can become one, so that a crash may repeat it.

        Returns:
            Whether it is shown so; False if it is another kind of file, or its receiver takes no voice messages.
        """
        chat = Chat.of(reply.conversation)
        if not is_voice(file):
            return False
        if len(self._journal.messages(reply)) > number:
            return True
        try:
            message = await self._api(send_voice(chat, file, caption), timeout_s=upload_s(file))
        except Refused:
            return False
        await self._journal.add_message(reply, str(message.message_id))
        return True

    async def _put_file(self, reply: Reply, file: File, caption: str | None, message_id: int) -> None:
        """Let a message show a file, as its kind or else as a document. Repeating it changes nothing."""
        chat = Chat.of(reply.conversation)
        for media in media_of(file, caption):
            change = EditMessageMedia(chat_id=chat.id, message_id=message_id, media=media)
            try:
                await self._api.edit(change, timeout_s=upload_s(file))
            except Refused as error:
                if is_gone(error):
                    raise
                # Such as a picture with odd dimensions.
                _log.info("telegram.file_refused", channel=self.name, kind=media.type, error=error.message)
            else:
                return
        await self._edit(chat, message_id, f"Telegram does not take {file.name}. `nova files get {file.id}` has it.")


def _progress(reply: Reply) -> Reply:
    """Return the reply whose message shows what a run does before its answer can be announced."""
    return reply.model_copy(update={"id": f"{reply.id}:progress"})
