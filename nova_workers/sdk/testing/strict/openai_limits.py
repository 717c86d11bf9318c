"""The rules of OpenAI for sizes and fields, which chat completions and the Responses API share.

Each function raises `Refused` for what the provider refuses.
"""

from collections.abc import Set
from typing import Any

from nova_workers.sdk.testing.strict.refused import Refused

Json = dict[str, Any]

MAX_ID_CHARS = 40
"""The limit of a call's id in chat completions. The Responses API takes 64."""
MAX_CALLS = 128
"""The limit of calls in one message."""
_MAX_REQUEST_BYTES = 50 * 1024 * 1024
_MAX_TEXT_CHARS = 10 * 1024 * 1024
_MAX_IMAGES = 500


def check_size(size_bytes: int) -> None:
    """Check the size of a request's body."""
    if size_bytes > _MAX_REQUEST_BYTES:
        raise Refused(f"The request of {size_bytes} bytes is larger than {_MAX_REQUEST_BYTES} bytes.", status=413)


def check_images(count: int) -> None:
    """Check how many images a request has."""
    if count > _MAX_IMAGES:
        raise Refused(f"Too many images in request. Limit is {_MAX_IMAGES}, but got {count}.")


def check_text(where: str, text: Any, most: int = _MAX_TEXT_CHARS) -> None:
    """Check the length of what may be text."""
    if isinstance(text, str) and len(text) > most:
        raise Refused(
            f"Invalid '{where}': string too long. Expected a string with maximum length {most}, but got a string with "
            f"length {len(text)} instead.",
            code="string_above_max_length",
        )


def check_parameters(where: str, given: Json, known: Set[str]) -> None:
    """Check that the provider knows the fields of a part of a request; its place ends with a dot."""
    for name in sorted(given.keys() - known):
        raise Refused(f"Unknown parameter: '{where}{name}'.", code="unknown_parameter")
