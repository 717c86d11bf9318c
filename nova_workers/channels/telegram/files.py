"""Files that agents send, as the kind of message that fits them."""

from typing import NamedTuple

from aiogram.methods import SendAudio, SendDocument, SendPhoto, SendVoice
from aiogram.types import BufferedInputFile

from nova_workers.channels.port import File
from nova_workers.channels.telegram.rendering import units

__all__ = ["MAX_UPLOAD_BYTES", "Chat", "fits_caption", "send_as_document", "send_file"]

MAX_UPLOAD_BYTES = 50_000_000
_MAX_PHOTO_BYTES = 10_000_000
_MAX_CAPTION_UNITS = 1_024
_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_VOICE = frozenset({"audio/ogg", "audio/opus"})
_MUSIC = frozenset({"audio/mpeg", "audio/mp4"})


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


def send_as_document(chat: Chat, file: File, caption: str | None) -> SendDocument:
    """Return the request that sends a file as it is."""
    return SendDocument(chat_id=chat.id, message_thread_id=chat.topic, caption=caption, document=_upload(file))


def send_file(chat: Chat, file: File, caption: str | None) -> SendDocument | SendPhoto | SendVoice | SendAudio:
    """Return the request that sends a file by its type: pictures are shown, recordings are played."""
    upload, thread = _upload(file), chat.topic
    if file.media_type in _PHOTOS and file.size_bytes <= _MAX_PHOTO_BYTES:
        return SendPhoto(chat_id=chat.id, message_thread_id=thread, caption=caption, photo=upload)
    if file.media_type in _VOICE:
        return SendVoice(chat_id=chat.id, message_thread_id=thread, caption=caption, voice=upload)
    if file.media_type in _MUSIC:
        return SendAudio(chat_id=chat.id, message_thread_id=thread, caption=caption, audio=upload)
    return send_as_document(chat, file, caption)


def _upload(file: File) -> BufferedInputFile:
    return BufferedInputFile(file.content or b"", filename=file.name)
