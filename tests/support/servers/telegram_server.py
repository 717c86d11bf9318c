"""A Bot API server on loopback: the methods, answers and errors of Telegram's that a bot meets.

async with telegram_server() as telegram:
    telegram.says("hello", user=7)
    await until(lambda: telegram.texts(7) == ["You said: hello"])
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.servers.asgi import serving

BOT_ID = 4242
TOKEN = f"{BOT_ID}:AAtest-token-that-must-never-be-in-a-log"
_MAX_UNITS = 4_096
_POLL_S = 2.0
"""A long poll of the tests ends sooner, so that a stopped server does not wait."""

Params = dict[str, Any]
Hook = Callable[[str, Params], Awaitable[None]]


class BotApiError(Exception):
    """An error answer of the Bot API."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status = status
        self.body: Params = {"ok": False, "error_code": status, "description": description}
        if parameters:
            self.body["parameters"] = parameters


@dataclass
class Shown:
    """A message of the bot as people see it."""

    chat: int
    id: int
    text: str
    html: str | None = None
    buttons: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    kind: str = "text"
    content: bytes = b""
    file_name: str = ""
    edits: int = 0


class TelegramServer:
    """One bot and its chats.

    Attributes:
        calls: Every call in order: method and parameters.
        failures: Planned errors by method; each is the answer to one call.
        before: Runs when a call arrives, before it has an effect; `after` runs before its answer. A file is fetched by
            the call ``download``.
        moved: New ids of groups that became supergroups, by the old ones.
    """

    def __init__(self, token: str = TOKEN) -> None:
        self.url = ""
        self.token = token
        self.calls: list[tuple[str, Params]] = []
        self.failures: dict[str, list[BotApiError]] = {}
        self.before: Hook | None = None
        self.after: Hook | None = None
        self.webhook: Params | None = None
        self.commands: list[str] = []
        self.messages: list[Shown] = []
        self.toasts: list[str] = []
        self.moved: dict[int, int] = {}
        self._updates: list[Params] = []
        self._files: dict[str, bytes] = {}
        self._next_update, self._next_message = 1000, 1
        self._arrived = asyncio.Event()
        self._poll = 0

    # What people do

    def says(self, text: str, user: int = 7, chat: int | None = None, **fields: Any) -> int:
        """Let a person write; return the id of the update."""
        return self._arrive("message", self._message(user, chat, text=text, **fields))

    def sends(self, kind: str, content: bytes, user: int = 7, **fields: Any) -> int:
        """Let a person send a photo, a document or a voice message."""
        file_id = f"file{len(self._files)}"
        self._files[file_id] = content
        file: Params = {"file_id": file_id, "file_unique_id": file_id, "file_size": len(content)}
        caption = fields.pop("caption", None)
        asked = {"reply_to_message": fields.pop("reply_to_message")} if "reply_to_message" in fields else {}
        about = file | {"photo": {"width": 9, "height": 9}, "voice": {"duration": 1}}.get(kind, {}) | fields
        message = self._message(user, None, **{kind: [about] if kind == "photo" else about}, **asked)
        return self._arrive("message", message | ({"caption": caption} if caption else {}))

    def presses(self, message: Shown, label: str, user: int = 7) -> int:
        """Let a person press a button."""
        return self.presses_data(
            message, next(button["callback_data"] for button in message.buttons if label in button["text"]), user
        )

    def presses_data(self, message: Shown, data: str, user: int = 7) -> int:
        """Let a client press a button with any data, as an odd one can."""
        query = {"id": str(self._next_update), "from": _user(user), "chat_instance": "1", "data": data}
        return self._arrive("callback_query", query | {"message": self._view(message)})

    def replies_to(self, message: Shown, text: str, user: int = 7) -> int:
        """Let a person write as a reply to a message of the bot."""
        return self.says(text, user, reply_to_message=self._view(message))

    def replies_with_photo(self, message: Shown, content: bytes, user: int = 7) -> int:
        """Let a person send a photo as a reply to a message of the bot."""
        return self.sends("photo", content, user, reply_to_message=self._view(message))

    def deletes(self, message: Shown) -> None:
        """Let a person delete a message of the bot."""
        self.messages.remove(message)

    # What they see

    def texts(self, chat: int = 7) -> list[str]:
        """Return what the bot's messages in a chat say now."""
        return [message.text for message in self.messages if message.chat == chat]

    def whole_texts(self, chat: int = 7) -> list[str]:
        """Return the same without messages that have only their first words yet."""
        return [text for text in self.texts(chat) if not text.endswith("…")]

    def named(self, method: str) -> list[Params]:
        """Return the parameters of every call of a method."""
        return [params for name, params in self.calls if name == method]

    @property
    def unconfirmed(self) -> list[int]:
        """Ids of the updates that the bot has not confirmed."""
        return [update["update_id"] for update in self._updates]

    # The methods

    async def handle(self, request: Request) -> Response:
        """Answer one call."""
        method, token = request.path_params["method"], request.path_params["token"]
        try:
            if token != self.token:
                raise BotApiError(401, "Unauthorized")
            params = await _params(request)
            self.calls.append((method, params))
            if self.before is not None:
                await self.before(method, params)
            if self.failures.get(method):
                raise self.failures[method].pop(0)
            if (moved_to := self.moved.get(int(params.get("chat_id", 0)))) is not None:
                words = "Bad Request: group chat was upgraded to a supergroup chat"
                raise BotApiError(400, words, migrate_to_chat_id=moved_to)
            result = await getattr(self, f"_{method}")(params)
            if self.after is not None:
                await self.after(method, params)
            return JSONResponse({"ok": True, "result": result})
        except BotApiError as error:
            return JSONResponse(error.body, status_code=error.status)

    async def download(self, request: Request) -> Response:
        """Serve a file."""
        if self.before is not None:
            await self.before("download", {})
        known = request.path_params["token"] == self.token and request.path_params["path"] in self._files
        return Response(self._files[request.path_params["path"]]) if known else Response(status_code=404)

    async def _getMe(self, _: Params) -> Params:
        return _user(BOT_ID) | {"is_bot": True, "username": "nova_test_bot"}

    async def _setMyCommands(self, params: Params) -> bool:
        self.commands = [command["command"] for command in json.loads(params["commands"])]
        return True

    async def _setWebhook(self, params: Params) -> bool:
        self.webhook = params
        return True

    async def _deleteWebhook(self, _: Params) -> bool:
        self.webhook = None
        return True

    async def _getUpdates(self, params: Params) -> list[Params]:
        if self.webhook is not None:
            raise BotApiError(409, "Conflict: can't use getUpdates method while webhook is active")
        self._poll += 1
        mine = self._poll
        self._arrived.set()
        self._arrived = asyncio.Event()
        offset = int(params.get("offset", 0))
        self._updates = [update for update in self._updates if update["update_id"] >= offset]
        try:
            async with asyncio.timeout(min(float(params.get("timeout", 0)), _POLL_S)):
                while not self._updates:
                    await self._arrived.wait()
                    if self._poll != mine:
                        raise BotApiError(409, "Conflict: terminated by other getUpdates request")
        except TimeoutError:
            return []
        return self._updates[: int(params.get("limit", 100))]

    async def _sendMessage(self, params: Params) -> Params:
        return self._view(self._show(params, "text", params["text"]))

    async def _editMessageText(self, params: Params) -> Params:
        message = self._found(params)
        text, html = _plain(params)
        buttons = _buttons(params)
        if (message.text, message.html, message.buttons) == (text, html, buttons):
            raise BotApiError(400, "Bad Request: message is not modified: specified new message content is the same")
        message.text, message.html, message.buttons = text, html, buttons
        message.edits += 1
        return self._view(message)

    async def _editMessageReplyMarkup(self, params: Params) -> Params:
        message = self._found(params)
        if message.buttons == _buttons(params):
            raise BotApiError(400, "Bad Request: message is not modified")
        message.buttons = _buttons(params)
        return self._view(message)

    async def _editMessageMedia(self, params: Params) -> Params:
        message = self._found(params)
        media = json.loads(params["media"])
        message.file_name, message.content = params[media["media"].removeprefix("attach://")]
        message.kind, message.text, message.html = media["type"], media.get("caption", ""), None
        message.edits += 1
        return self._view(message)

    async def _deleteMessage(self, params: Params) -> bool:
        self.messages.remove(self._found(params))
        return True

    async def _sendVoice(self, params: Params) -> Params:
        return self._view(self._show(params, "voice"))

    async def _sendChatAction(self, _: Params) -> bool:
        return True

    async def _answerCallbackQuery(self, params: Params) -> bool:
        self.toasts.append(params.get("text", ""))
        return True

    async def _getFile(self, params: Params) -> Params:
        file_id = params["file_id"]
        return {"file_id": file_id, "file_unique_id": file_id, "file_path": file_id}

    def _arrive(self, kind: str, content: Params) -> int:
        update_id = self._next_update
        self._next_update += 1
        self._updates.append({"update_id": update_id, kind: content})
        self._arrived.set()
        self._arrived = asyncio.Event()
        return update_id

    def end_polls(self) -> None:
        """Answer the requests that wait for updates."""
        self._poll += 1
        self._arrived.set()

    def last_update(self) -> Params:
        """Take the newest update out of the queue, to send it to a webhook."""
        return self._updates.pop()

    def _message(self, user: int, chat: int | None, **fields: Any) -> Params:
        self._next_message += 1
        return {
            "message_id": self._next_message,
            "date": 1_700_000_000,
            "from": _user(user),
            "chat": _chat(user if chat is None else chat),
            **fields,
        }

    def _show(self, params: Params, kind: str, text: str = "") -> Shown:
        self._next_message += 1
        shown, html = _plain({**params, "text": text or params.get("caption", "")})
        message = Shown(int(params["chat_id"]), self._next_message, shown, html, _buttons(params), kind)
        for value in params.values():
            if isinstance(value, tuple):
                message.file_name, message.content = value
        self.messages.append(message)
        return message

    def _found(self, params: Params) -> Shown:
        for message in self.messages:
            if (message.chat, message.id) == (int(params["chat_id"]), int(params["message_id"])):
                return message
        raise BotApiError(400, "Bad Request: message to edit not found")

    def _view(self, message: Shown) -> Params:
        view: Params = {
            "message_id": message.id,
            "date": 1_700_000_000,
            "chat": _chat(message.chat),
            "from": _user(BOT_ID) | {"is_bot": True},
            "text": message.text or "file",
        }
        if message.buttons:
            view["reply_markup"] = {"inline_keyboard": [[button] for button in message.buttons]}
        return view


class _Entities(HTMLParser):
    """Reads Telegram's HTML, and refuses what it refuses."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self._open: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether a tag has no end."""
        return bool(self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"a", "b", "blockquote", "code", "i", "pre", "s", "u"}:
            raise BotApiError(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            raise BotApiError(400, "Bad Request: can't parse entities: Unmatched end tag")

    def handle_data(self, data: str) -> None:
        self.text += data


def shown_text(html: str) -> str:
    """Return what people see of a text in Telegram's HTML.

    Raises:
        BotApiError: Telegram would refuse it.
    """
    entities = _Entities()
    entities.feed(html)
    entities.close()
    if entities.is_open:
        raise BotApiError(400, "Bad Request: can't parse entities: Can't find end tag")
    return entities.text


def _plain(params: Params) -> tuple[str, str | None]:
    text, html = str(params["text"]), None
    if params.get("parse_mode") == "HTML":
        text, html = shown_text(text), text
    if len(text.encode("utf-16-le")) // 2 > _MAX_UNITS:
        raise BotApiError(400, "Bad Request: message is too long")
    return text, html


def _buttons(params: Params) -> list[dict[str, str]]:
    rows = json.loads(params.get("reply_markup") or "{}").get("inline_keyboard", [])
    buttons = [button for row in rows for button in row]
    if any(len(button["callback_data"].encode()) > 64 for button in buttons):
        raise BotApiError(400, "Bad Request: BUTTON_DATA_INVALID")
    return [{"text": button["text"], "callback_data": button["callback_data"]} for button in buttons]


def _user(user: int) -> Params:
    return {"id": user, "is_bot": False, "first_name": f"Person {user}"}


def _chat(chat: int) -> Params:
    return {"id": chat, "type": "private" if chat > 0 else "group", "title": "Group"}


async def _params(request: Request) -> Params:
    params: Params = {}
    async with request.form() as form:
        for name, value in form.multi_items():
            params[name] = (value.filename, await value.read()) if isinstance(value, UploadFile) else value
    return params


@asynccontextmanager
async def telegram_server(port: int = 0) -> AsyncGenerator[TelegramServer]:
    """Run a Bot API server on loopback."""
    telegram = TelegramServer()
    app = Starlette(
        routes=[
            Route("/bot{token}/{method}", telegram.handle, methods=["POST"]),
            Route("/file/bot{token}/{path}", telegram.download, methods=["GET"]),
        ]
    )
    async with serving(app, port=port) as telegram.url:
        yield telegram
        telegram.end_polls()
