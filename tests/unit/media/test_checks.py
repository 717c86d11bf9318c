"""Images and PDFs that a provider would refuse are detected before they are sent."""

import base64

import pytest

from nova_workers.base.media import bytes_problem, media_problem
from tests.support.data.media_samples import GIF, JPEG, PDF, WEBP, jpeg, png

WHOLE = {
    "image/png": png(),
    "image/jpeg": JPEG,
    "image/gif": GIF,
    "image/webp": WEBP,
    "application/pdf": PDF,
}


@pytest.mark.parametrize("media_type", list(WHOLE))
def test_a_valid_file_has_no_problem(media_type: str) -> None:
    assert media_problem(media_type, base64.b64encode(WHOLE[media_type]).decode()) is None
    assert "incomplete" in (bytes_problem(media_type, WHOLE[media_type][:-4]) or "")
    others = [other for other in WHOLE if other != media_type]
    for other in others:
        assert f"its content is {media_type}" in (bytes_problem(other, WHOLE[media_type]) or "")


@pytest.mark.parametrize("raw", [png(8_001, 1), png(1, 8_001), jpeg(8_001, 1), jpeg(1, 9_000)])
def test_more_pixels_than_the_provider_accepts_are_a_problem(raw: bytes) -> None:
    media_type = "image/png" if raw.startswith(b"\x89PNG") else "image/jpeg"
    assert "at most 8000" in (bytes_problem(media_type, raw) or "")
    assert bytes_problem("image/png", png(8_000, 8_000)) is None


def test_a_header_that_cannot_be_read_is_a_problem() -> None:
    assert "header" in (bytes_problem("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 20 + b"IEND\xaeB`\x82") or "")
    assert "header" in (bytes_problem("image/jpeg", b"\xff\xd8\xff\xda and \xff\xd9") or "")
    assert "header" in (bytes_problem("image/webp", b"RIFF\x04\x00\x00\x00WEBP" + b"x" * 30) or "")
    assert "header" in (bytes_problem("image/png", png(0, 1)) or "")


@pytest.mark.parametrize(
    ("media_type", "data", "says"),
    [
        ("image/tiff", "AAAA", "media type 'image/tiff'"),
        ("image/png", "no base64!", "not valid base64"),
        ("image/png", "AAA", "not valid base64"),
        ("image/png", "A" * (5 * 1024 * 1024 + 4), "at most 5,242,880"),
        ("application/pdf", "A" * (24 * 1024 * 1024 + 4), "at most 25,165,824"),
    ],
)
def test_undecodable_data_is_a_problem(media_type: str, data: str, says: str) -> None:
    assert says in (media_problem(media_type, data) or "")
