"""Images and documents that a model provider accepts are accepted unchanged."""

import base64
from typing import Any

import pytest

from api.submitting import content_of
from tests.support.data import media_samples


def _base64(raw: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(raw).decode()}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": _base64(media_samples.png(8_000, 8_000), "image/png")},
        {"type": "image", "source": _base64(media_samples.WEBP, "image/webp")},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": _base64(media_samples.PDF, "application/pdf"), "title": "Report"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        {
            "type": "document",
            "source": {
                "type": "content",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image", "source": _base64(media_samples.GIF, "image/gif")},
                ],
            },
            "citations": {"enabled": True},
        },
    ],
)
def test_a_block_that_the_provider_accepts_is_accepted(block: dict[str, Any]) -> None:
    assert content_of([block], max_chars=100) == (block,)
