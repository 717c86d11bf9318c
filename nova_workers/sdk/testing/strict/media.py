"""What an image file says of itself in its first bytes."""

import struct

_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_NO_SIZE = (0xC4, 0xC8, 0xCC)


def image_kind(raw: bytes) -> str | None:
    """Return the media type of an image; None if it is none that models read."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _BEGINNINGS.items() if raw.startswith(beginning)), None)


def image_size(raw: bytes) -> tuple[int, int] | None:
    """Return width and height; None if the header is unreadable."""
    try:
        match image_kind(raw):
            case "image/png":
                return struct.unpack_from(">II", raw, 16)
            case "image/gif":
                return struct.unpack_from("<HH", raw, 6)
            case "image/jpeg":
                return _jpeg_size(raw)
            case "image/webp":
                return _webp_size(raw)
            case _:
                return None
    except (struct.error, IndexError):
        return None


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    at = 2
    while True:
        if raw[at] != 0xFF:
            raise IndexError
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        at += 2 + struct.unpack_from(">H", raw, at + 2)[0]


def _webp_size(raw: bytes) -> tuple[int, int] | None:
    kind = raw[12:16]
    if kind == b"VP8X":
        width, height = raw[24:27], raw[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", raw, 26)
    return width & 0x3FFF, height & 0x3FFF
