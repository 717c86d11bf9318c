"""Images that are larger than providers take are made smaller once, where they arrive."""

from __future__ import annotations

import base64
import io
import os
from typing import Any

import pytest
from PIL import Image

from nova_workers.base.media import MOST_PIXELS, media_problem, with_scaled_images
from tests.requirements import proves
from tests.support.data import media_samples

NOISE = Image.frombytes("RGB", (1_600, 1_600), os.urandom(1_600 * 1_600 * 3))


def _block(image: Image.Image, kind: str, **options: Any) -> dict[str, Any]:
    written = io.BytesIO()
    image.save(written, kind, **options)
    return _of(f"image/{kind.lower()}", written.getvalue())


def _of(media_type: str, raw: bytes) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": base64.b64encode(raw).decode()},
    }


def _opened(block: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(block["source"]["data"])))


@pytest.mark.parametrize(
    ("given", "size", "media_type"),
    [
        (_block(Image.new("RGB", (4_000, 1_000), "red"), "PNG"), (2_000, 500), "image/png"),
        (_block(Image.new("RGBA", (10, 2_400), (255, 0, 0, 9)), "PNG"), (8, 2_000), "image/png"),
        (_block(Image.new("RGB", (9_000, 3_000), "red"), "JPEG"), (2_000, 667), "image/jpeg"),
        (_block(Image.new("RGB", (2_500, 2_500), "red"), "WEBP"), (2_000, 2_000), "image/png"),
        (_block(Image.new("P", (3_000, 30)), "GIF"), (2_000, 20), "image/png"),
        (_block(NOISE, "PNG"), (1_600, 1_600), "image/jpeg"),
    ],
    ids=["wide", "transparent", "photograph", "webp", "gif", "bytes"],
)
@proves("media.scaled-once")
async def test_a_large_image_is_made_to_fit(given: dict[str, Any], size: tuple[int, int], media_type: str) -> None:
    (scaled,) = await with_scaled_images((given,))
    image = _opened(scaled)
    assert (image.size, scaled["source"]["media_type"]) == (size, media_type)
    assert max(image.size) <= MOST_PIXELS
    assert media_problem(media_type, scaled["source"]["data"]) is None


@pytest.mark.parametrize(
    "block",
    [
        _block(Image.new("RGB", (2_000, 20)), "PNG"),
        _of("image/png", media_samples.png(9_000, 1)[:-20]),
        _of("image/png", b"no image"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "text", "text": "a"},
    ],
    ids=["small", "broken", "no image", "no base64", "an address", "text"],
)
async def test_what_needs_or_takes_no_scaling_stays(block: dict[str, Any]) -> None:
    assert await with_scaled_images((block,)) == (block,)
