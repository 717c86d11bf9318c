"""Whether an image or a PDF is one that a model provider reads: its encoding, kind, ends and dimensions.

One that is not would be refused with every request of its conversation. The bounds are those of the Messages API (its
pages "Vision" and "PDF support"). Only headers are decoded: they show what goes wrong in practice (another kind than
the name says, half a file, too many pixels) without decompressing anything, and without the memory of an image
library in every process. What passes here and is refused all the same gives way to a note later.
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_IMAGE_PIXELS = 8_000
"""The most pixels of each side."""
MAX_IMAGE_CHARS = 5 * 1024 * 1024
"""Of base64, as the provider counts."""
_MAX_DOCUMENT_CHARS = 24 * 1024 * 1024
"""The provider takes requests of up to 32 MB; there is more in one than this document."""
_TAIL_BYTES = 1_024
"""A file has its end within its last bytes: some programs write padding or notes after it."""
_RIFF_HEADER_BYTES = 8
_SNIFFED_CHARS = 64
_HEADER_CHARS = 262_144
"""Cameras write a small picture of up to 64 KB before the size of the picture."""
_JPEG_SCAN = b"\xff\xda"
_JPEG_WITHOUT_SIZE = frozenset({0xC4, 0xC8, 0xCC})
"""Markers from C0 to CF that are not frame headers."""

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of file: how it begins, whether it is whole, and the size in its header (None if that is unreadable)."""

    beginning: re.Pattern[bytes]
    is_whole: Callable[[bytes], bool]
    size: Callable[[bytes], Size | None] | None
    max_chars: int = MAX_IMAGE_CHARS


def media_problem(media_type: str, data: str) -> str | None:
    """Return why a provider would refuse base64 data, in words that follow "it"; None where it would not."""
    kind = _KINDS.get(media_type)
    if kind is None:
        return f"has the media type {media_type!r}; models read {', '.join(MEDIA_TYPES)}"
    if len(data) > kind.max_chars:
        return f"has {len(data):,} characters of base64; at most {kind.max_chars:,} are taken"
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return "is not valid base64"
    return bytes_problem(media_type, raw)


def media_type_of(data: str) -> str | None:
    """Return the type that base64 data has by its first bytes; None if it is none of `MEDIA_TYPES`."""
    try:
        beginning = base64.b64decode(data[:_SNIFFED_CHARS], validate=True)
    except ValueError:
        return None
    return next((name for name, kind in _KINDS.items() if kind.beginning.match(beginning)), None)


def image_size(media_type: str, data: str) -> tuple[int, int] | None:
    """Return width and height of an image in base64 by its header; None if it is no image or has none there."""
    kind = _KINDS.get(media_type)
    if kind is None or kind.size is None:
        return None
    try:
        raw = base64.b64decode(data[:_HEADER_CHARS], validate=True)
    except ValueError:
        return None
    return kind.size(raw) if kind.beginning.match(raw) else None


def bytes_problem(media_type: str, raw: bytes) -> str | None:
    """Return why a provider would refuse a file of a known media type, as `media_problem` does."""
    kind = _KINDS[media_type]
    if kind.beginning.match(raw) is None:
        found = next((name for name, other in _KINDS.items() if other.beginning.match(raw)), "something else")
        return f"is said to be {media_type}, and its content is {found}"
    if not kind.is_whole(raw):
        return f"begins as {media_type} and does not end as one: it is broken or incomplete"
    if kind.size is None:
        return None
    size = kind.size(raw)
    if size is None or min(size) < 1:
        return f"has no readable {media_type} header: it is broken or incomplete"
    if max(size) > MAX_IMAGE_PIXELS:
        return f"has {size[0]} x {size[1]} pixels; at most {MAX_IMAGE_PIXELS} are taken on each side"
    return None


def _ends_with(mark: bytes) -> Callable[[bytes], bool]:
    return lambda raw: mark in raw[-_TAIL_BYTES:]


def _is_whole_jpeg(raw: bytes) -> bool:
    # Cameras write a whole small picture before the picture, and as much as they like after it.
    return b"\xff\xd9" in raw[max(raw.rfind(_JPEG_SCAN), 0) :]


def _is_whole_webp(raw: bytes) -> bool:
    # It has no mark at its end, and says at its beginning where that is.
    return len(raw) >= _RIFF_HEADER_BYTES + int.from_bytes(raw[4:_RIFF_HEADER_BYTES], "little")


def _png_size(raw: bytes) -> Size | None:
    return struct.unpack(">II", raw[16:24]) if raw[12:16] == b"IHDR" else None


def _gif_size(raw: bytes) -> Size | None:
    return struct.unpack("<HH", raw[6:10]) if len(raw) >= 10 else None


def _webp_size(raw: bytes) -> Size | None:
    if len(raw) < 30:
        return None
    match raw[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", raw[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(raw[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
        case _:
            return None


def _jpeg_size(raw: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _JPEG_WITHOUT_SIZE:
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None


_KINDS: Mapping[str, _Kind] = {
    "image/png": _Kind(re.compile(rb"\x89PNG\r\n\x1a\n"), _ends_with(b"IEND\xaeB`\x82"), _png_size),
    "image/jpeg": _Kind(re.compile(rb"\xff\xd8\xff"), _is_whole_jpeg, _jpeg_size),
    "image/gif": _Kind(re.compile(rb"GIF8[79]a"), _ends_with(b"\x00;"), _gif_size),
    "image/webp": _Kind(re.compile(rb"RIFF.{4}WEBP", re.DOTALL), _is_whole_webp, _webp_size),
    "application/pdf": _Kind(re.compile(rb"%PDF-"), _ends_with(b"%%EOF"), None, _MAX_DOCUMENT_CHARS),
}

MEDIA_TYPES = tuple(_KINDS)
"""What models read, as base64."""
