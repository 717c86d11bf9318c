"""What people attach: photos, documents and recordings."""

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import NamedTuple

from aiogram.methods import GetFile
from aiogram.types import Message

from nova_workers.base.audio import find_transcriber
from nova_workers.base.config import AudioSettings
from nova_workers.base.errors import DeliveryFailed, InvalidInput, ToolFailure
from nova_workers.channels.port import Attachment
from nova_workers.channels.telegram.api import MAX_DOWNLOAD_BYTES, BotApi
from nova_workers.client.retry import Retry

_FETCHING = Retry(attempts=4, base_s=0.5, max_s=4.0)
_TEXT_SUFFIXES = frozenset(
    {".csv", ".css", ".htm", ".html", ".ini", ".js", ".json", ".log", ".md", ".py", ".sh", ".sql", ".toml", ".ts"}
    | {".txt", ".xml", ".yaml", ".yml"}
)
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NO_VOICE = (
    "Voice messages are not configured here. The operator sets NOVA_AUDIO__TRANSCRIPTION_URL for this channel; "
    "until then, please write."
)


class Recording(NamedTuple):
    """A voice message or an audio file."""

    file_id: str
    size_bytes: int
    suffix: str


class MediaReader:
    """Fetches the files of messages, each within Telegram's bound."""

    def __init__(self, api: BotApi, audio: AudioSettings) -> None:
        self._api = api
        self._audio = audio

    async def attachment(self, message: Message) -> Attachment | None:
        """Return the photo or the document of a message.

        Raises:
            InvalidInput: It cannot be taken; the message is for its sender.
        """
        if message.photo:
            photo = message.photo[-1]
            return _attachment("image/jpeg", await self._fetch(photo.file_id, photo.file_size))
        document = message.document
        if document is None:
            return None
        media_type = _media_type(document.mime_type, document.file_name)
        return _attachment(media_type, await self._fetch(document.file_id, document.file_size))

    async def transcript(self, message: Message) -> str | None:
        """Return the words in the recording of a message.

        Raises:
            InvalidInput: There is no transcription, or it failed; the message is for its sender.
        """
        recording = _recording(message)
        if recording is None:
            return None
        try:
            transcriber = await asyncio.to_thread(find_transcriber, self._audio)
        except ToolFailure:
            raise InvalidInput(_NO_VOICE) from None
        content = await self._fetch(recording.file_id, recording.size_bytes)
        try:
            with tempfile.TemporaryDirectory(prefix="nova-voice-") as folder:
                path = Path(folder) / f"recording{recording.suffix}"
                await asyncio.to_thread(path.write_bytes, content)
                text = await transcriber.transcribe(path, None)
        except ToolFailure as error:
            raise InvalidInput(f"The recording could not be transcribed: {error.message}") from error
        if not text.strip():
            raise InvalidInput("No speech was heard in the recording.")
        return text.strip()

    async def _fetch(self, file_id: str, size_bytes: int | None) -> bytes:
        _check_size(size_bytes)
        failures = 0
        while True:
            try:
                file = await self._api(GetFile(file_id=file_id))
                _check_size(file.file_size)
                return await self._api.download(file.file_path or "")
            except DeliveryFailed as error:
                failures += 1
                if not error.retryable or failures >= _FETCHING.attempts:
                    raise InvalidInput("The file could not be fetched from Telegram. Send it again.") from error
                await asyncio.sleep(error.retry_after_s or _FETCHING.delay_s(failures))


def _check_size(size_bytes: int | None) -> None:
    if (size_bytes or 0) > MAX_DOWNLOAD_BYTES:
        raise InvalidInput(f"Telegram lets bots fetch files up to 20 MB, and this one has {size_bytes} bytes.")


def _attachment(media_type: str, content: bytes) -> Attachment:
    return Attachment(media_type=media_type, data=base64.b64encode(content).decode())


def _media_type(given: str | None, name: str | None) -> str:
    suffix = Path(name or "").suffix.lower()
    if given in _IMAGES or given == "application/pdf":
        return given
    if (given or "").startswith("text/") or suffix in _TEXT_SUFFIXES:
        return "text/plain"
    raise InvalidInput(
        f"Documents are taken as images, PDFs and texts, and this one is {given or suffix or 'of no known type'}."
    )


def _recording(message: Message) -> Recording | None:
    if message.voice is not None:
        # ogg: the suffix by which transcription servers know Opus.
        return Recording(message.voice.file_id, message.voice.file_size or 0, ".ogg")
    if message.audio is not None:
        suffix = Path(message.audio.file_name or "").suffix or ".mp3"
        return Recording(message.audio.file_id, message.audio.file_size or 0, suffix)
    return None
