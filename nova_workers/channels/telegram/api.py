"""Calls of the Bot API by aiogram, with errors that never have the bot's token, which is a part of every URL."""

from io import BytesIO
from typing import Any, TypeVar

import structlog
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    ClientDecodeError,
    TelegramAPIError,
    TelegramBadRequest,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.methods import EditMessageMedia, EditMessageText, GetUpdates, TelegramMethod
from aiogram.types import Update as TelegramUpdate
from aiohttp import ClientError
from pydantic import SecretStr, ValidationError

from nova_workers.base.errors import ConfigurationError, DeliveryFailed

_log = structlog.get_logger(__name__)

MAX_DOWNLOAD_BYTES = 20_000_000
"""What the Bot API lets a bot fetch."""
_CALL_S = 60
_MAX_PAUSE_S = 300
_PERMANENT = (TelegramForbiddenError, TelegramNotFound, TelegramEntityTooLarge, TelegramMigrateToChat)
_GONE = ("message to edit not found", "message can't be edited", "MESSAGE_ID_INVALID")

T = TypeVar("T")


class Refused(DeliveryFailed):
    """Telegram refuses the request itself (400); the message has its description."""

    code = "delivery_refused"


def is_gone(error: Refused) -> bool:
    """Return whether an edit was refused since its message is not there any more."""
    return any(words in error.message for words in _GONE)


class ConflictingPoller(DeliveryFailed):
    """Another process, which has not our lease, reads the updates of the bot (409)."""

    code = "delivery_conflict"


class BotApi:
    """One bot. Calls raise `DeliveryFailed`, which says whether and when another attempt can help."""

    def __init__(self, token: SecretStr, base_url: str) -> None:
        """Prepare a bot; nothing is sent yet.

        Raises:
            ConfigurationError: The token has not the form of one.
        """
        self._token = token.get_secret_value()
        session = AiohttpSession(api=TelegramAPIServer.from_base(base_url))
        try:
            self._bot = Bot(self._token, session=session)
        except ValueError:
            raise ConfigurationError(
                "A Telegram token has not the form 1234:letters. Copy it from BotFather again."
            ) from None

    @property
    def id(self) -> int:
        """The bot's id, which is a part of its token."""
        return self._bot.id

    async def __call__(self, method: TelegramMethod[T], *, timeout_s: int = _CALL_S) -> T:
        """Call a method of the Bot API, and return its result.

        Raises:
            DeliveryFailed: Telegram refused it, or did not answer.
        """
        try:
            return await self._bot(method, request_timeout=timeout_s)
        except TelegramMigrateToChat as error:
            if getattr(method, "chat_id", None) == error.migrate_to_chat_id:
                raise self._failure(error) from None
            moved_to = error.migrate_to_chat_id
        except (TelegramAPIError, ClientDecodeError, ClientError, TimeoutError) as error:
            raise self._failure(error) from None
        # The group became a supergroup, under another id. What was begun in it is finished there.
        return await self(method.model_copy(update={"chat_id": moved_to}), timeout_s=timeout_s)

    async def edit(self, method: EditMessageText | EditMessageMedia, *, timeout_s: int = _CALL_S) -> None:
        """Edit a message. That it shows this already is no error.

        Raises:
            DeliveryFailed: Telegram refused it, or did not answer.
        """
        try:
            await self(method, timeout_s=timeout_s)
        except Refused as error:
            if "not modified" not in error.message:
                raise

    async def updates(self, method: GetUpdates, *, timeout_s: int) -> list[TelegramUpdate]:
        """Return a batch of updates. One that cannot be read is skipped, so that it does not block the others."""
        try:
            return await self._bot(method, request_timeout=timeout_s)
        except ClientDecodeError as error:
            if not isinstance(error.data, dict) or not error.data.get("ok"):
                raise self._failure(error) from None
            return self._readable(error.data["result"])
        except (TelegramAPIError, ClientError, TimeoutError) as error:
            raise self._failure(error) from None

    async def download(self, file_path: str) -> bytes:
        """Return the content of a file whose path `getFile` gave."""
        target = BytesIO()
        try:
            await self._bot.download_file(file_path, target, timeout=_CALL_S)
        except (TelegramAPIError, ClientError, TimeoutError) as error:
            raise self._failure(error) from None
        return target.getvalue()

    def parse(self, data: bytes) -> TelegramUpdate:
        """Read an update that a webhook got.

        Raises:
            ValidationError: It is none.
        """
        return TelegramUpdate.model_validate_json(data, context={"bot": self._bot})

    async def close(self) -> None:
        """Close the connections."""
        await self._bot.session.close()

    def _readable(self, results: list[dict[str, Any]]) -> list[TelegramUpdate]:
        found: list[TelegramUpdate] = []
        for result in results:
            try:
                found.append(TelegramUpdate.model_validate(result, context={"bot": self._bot}))
            except ValidationError:
                _log.exception("telegram.update_not_read", update_id=result.get("update_id"))
                found.append(TelegramUpdate(update_id=int(result["update_id"])))
        return found

    def _failure(self, error: Exception) -> DeliveryFailed:
        said = error.message if isinstance(error, TelegramAPIError) else type(error).__name__
        words = f"Telegram: {said}".replace(self._token, "…")[:500]
        match error:
            case TelegramRetryAfter():
                pause_s = float(min(max(error.retry_after, 0), _MAX_PAUSE_S))
                return DeliveryFailed(words, retryable=True, response_status=429, retry_after_s=pause_s)
            case TelegramBadRequest():
                return Refused(words, retryable=False, response_status=400)
            case TelegramConflictError():
                return ConflictingPoller(words, retryable=True, response_status=409)
            case TelegramUnauthorizedError():
                return DeliveryFailed(words, retryable=True, response_status=401)
            case _:
                return DeliveryFailed(words, retryable=not isinstance(error, _PERMANENT))
