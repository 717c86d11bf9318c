"""Small valid pictures and documents, with the dimensions that a test needs."""

import struct
import zlib


def png(width: int = 1, height: int = 1) -> bytes:
    """Return a picture whose size is only in its header."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg(width: int = 1, height: int = 1) -> bytes:
    """Return the skeleton of a picture, with the thumbnail that cameras write before it."""
    thumbnail = b"\xff\xd8\xff\xda\xff\xd9"
    app = b"\xff\xe0" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + app + frame + b"\xff\xda\x00\x02 and so on \xff\xd9"


JPEG = jpeg()
GIF = b"GIF89a" + struct.pack("<HH", 2, 3) + b" and so on \x00;"
WEBP = b"RIFF\x16\x00\x00\x00WEBPVP8X" + struct.pack("<I", 10) + b"\x00" * 4 + b"\x01\x00\x00\x02\x00\x00"
PDF = b"%PDF-1.7 and so on\n%%EOF\n"
