"""Files that agents send, as the kind of message that fits them."""

from typing import NamedTuple

from aiogram.methods import SendVoice
from aiogram.types import BufferedInputFile, InputMediaAudio, InputMediaDocument, InputMediaPhoto

from nova_workers.channels.port import File
from nova_workers.channels.telegram.rendering import units

MAX_UPLOAD_BYTES = 50_000_000
_MAX_PHOTO_BYTES = 10_000_000
_MAX_CAPTION_UNITS = 1_024
_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_VOICE = frozenset({"audio/ogg", "audio/opus"})
_MUSIC = frozenset({"audio/mpeg", "audio/mp4"})
_UPLOAD_S = 60
_SLOWEST_BYTES_PER_S = 100_000


class Chat(NamedTuple):
    """A chat, and in a forum its topic."""

    id: int
    topic: int | None

    @classmethod
    def of(cls, conversation: str) -> "Chat":
        """Return the chat of a conversation."""
        chat, _, topic = conversation.partition("/")
        return cls(int(chat), int(topic) if topic else None)


def fits_caption(text: str) -> bool:
    """Return whether a text can stand below a file."""
    return units(text) <= _MAX_CAPTION_UNITS


def upload_s(file: File) -> int:
    """Return how long an upload may take, also on a slow line."""
    return _UPLOAD_S + file.size_bytes // _SLOWEST_BYTES_PER_S


def is_voice(file: File) -> bool:
    """Return whether a file can be a voice message."""
    return file.media_type in _VOICE


def send_voice(chat: Chat, file: File, caption: str | None) -> SendVoice:
    """Return the request that sends a recording as a voice message."""
    return SendVoice(chat_id=chat.id, message_thread_id=chat.topic, caption=caption, voice=_upload(file))


def media_of(file: File, caption: str | None) -> list[InputMediaPhoto | InputMediaAudio | InputMediaDocument]:
    """Return the media that may show a file in a message, the best first: pictures are shown, music is played."""
    upload = _upload(file)
    document = InputMediaDocument(media=upload, caption=caption)
    if file.media_type in _PHOTOS and file.size_bytes <= _MAX_PHOTO_BYTES:
        return [InputMediaPhoto(media=upload, caption=caption), document]
    if file.media_type in _MUSIC:
        return [InputMediaAudio(media=upload, caption=caption), document]
    return [document]


def _upload(file: File) -> BufferedInputFile:
    return BufferedInputFile(file.content or b"", filename=file.name)
