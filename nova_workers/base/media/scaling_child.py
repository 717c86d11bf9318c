"""Scales one image, as a program of its own: base64 in, a line with the media type and the image out.

Apart from the worker, because an image may need hundreds of megabytes, and its decoder reads what strangers made.
"""

import base64
import io
import os
import resource
import sys
from collections.abc import Iterator
from typing import Final

from PIL import Image, ImageOps

_MAX_MEMORY_BYTES: Final = 3 << 29
_MAX_CPU_S: Final = 15
_MAX_PIXELS: Final = 150_000_000
"""The most pixels of a decoded image: 600 MB."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_QUALITIES: Final = (88, 75, 50)


def main() -> int:
    """Scale the image of standard input to a number of pixels on each side and a number of bytes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    os.nice(10)
    most_pixels, most_bytes = map(int, sys.argv[1:3])
    Image.MAX_IMAGE_PIXELS = _MAX_PIXELS // 2
    with Image.open(io.BytesIO(base64.b64decode(sys.stdin.buffer.read())), formats=_FORMATS) as image:
        was_jpeg = image.format == "JPEG"
        # Decodes a photograph at a fraction of its size.
        image.draft(None, (most_pixels, most_pixels))
        upright = ImageOps.exif_transpose(image)
        upright.thumbnail((most_pixels, most_pixels), Image.Resampling.LANCZOS)
    for media_type, made in _encoded(upright, was_jpeg=was_jpeg):
        if len(made) <= most_bytes:
            sys.stdout.buffer.write(media_type.encode() + b"\n" + made)
            return 0
    return 1


def _encoded(image: Image.Image, *, was_jpeg: bool) -> Iterator[tuple[str, bytes]]:
    if not was_jpeg:
        yield "image/png", _bytes_of(image.convert("RGBA" if image.has_transparency_data else "RGB"), "PNG")
    whole = image.convert("RGBA")
    plain = Image.new("RGB", image.size, "white")
    plain.paste(whole, mask=whole)
    for quality in _QUALITIES:
        yield "image/jpeg", _bytes_of(plain, "JPEG", quality=quality)


def _bytes_of(image: Image.Image, kind: str, **options: int) -> bytes:
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


if __name__ == "__main__":
    sys.exit(main())
