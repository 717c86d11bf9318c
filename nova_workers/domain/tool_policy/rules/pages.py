"""Pages of the web as text. Implements the port `WebFetcher`."""

import asyncio
import codecs
import os
import sys
from email.message import Message
from pathlib import Path
from typing import Final

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.errors import OutboundFailed, ToolFailure
from nova_workers.base.observability.addresses import bare_address
from nova_workers.base.outbound.requests import Outbound, OutboundResponse
from nova_workers.contracts.ports import FetchedPage

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/json", "application/xml", "application/javascript", "application/yaml", ""})
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_CHARSETS = (
    "utf-8",
    "utf-16",
    "utf-32",
    "ascii",
    "iso8859-",
    "cp125",
    "gb",
    "big5",
    "shift_jis",
    "euc_",
    "koi8-",
    "mac-",
)
"""Encodings of text by Python's names. Python knows others, which are slow to undo or no encodings of text."""
_COMMAND: Final = (sys.executable, "-I", "-B", str(Path(__file__).with_name("readable_child.py")))
_CONVERT_S = 15.0
_CONVERSIONS = 2


class WebPages:
    """Fetches pages and makes them readable."""

    def __init__(self, outbound: Outbound, *, max_chars: int = 100_000) -> None:
        """Fetch through `outbound`; of a page at most `max_chars` are given."""
        self._outbound = outbound
        self._max_chars = max_chars
        self._converting = asyncio.Semaphore(_CONVERSIONS)

    async def fetch(self, url: str) -> FetchedPage:
        """Return a page. See `nova_workers.contracts.ports.WebFetcher`."""
        try:
            response = await self._outbound.request(
                "GET", url, headers={"Accept": "text/html, text/*;q=0.9, */*;q=0.1"}
            )
        except OutboundFailed as error:
            raise ToolFailure(error.message, url=url) from error
        content_type, charset = _content_type(response)
        if content_type in _HTML:
            text = await self._readable(response.body, charset, url)
        elif content_type.startswith("text/") or content_type in _TEXT or content_type.endswith(_TEXT_SUFFIXES):
            text = _decode(response.body, charset)
        else:
            raise ToolFailure(f"{bare_address(response.url)!r} is {content_type}, which is no text.", url=url)
        if not content_type and "\x00" in text:
            raise ToolFailure(f"{bare_address(response.url)!r} is no text.", url=url)
        truncated = response.truncated or len(text) > self._max_chars
        return FetchedPage(response.url, response.status, content_type, text[: self._max_chars].strip(), truncated)

    async def _readable(self, body: bytes, charset: str | None, url: str) -> str:
        html = _decode(body, charset).encode(errors="replace")
        # Longer than the text that is given, so that the cut is made where the text is one.
        bounds = Bounds(_CONVERT_S, 4 * self._max_chars + 4)
        async with self._converting:
            result = await run_child(_COMMAND, bounds, env={"PATH": os.defpath}, given=html)
        if result.exit_code != 0:
            raise ToolFailure(f"{bare_address(url)!r} is HTML that cannot be read.", url=url)
        return result.head.decode(errors="replace")


def _content_type(response: OutboundResponse) -> tuple[str, str | None]:
    header = response.headers.get("content-type", "")
    if not header.strip():
        return "", None
    message = Message()
    message["content-type"] = header
    return message.get_content_type().lower(), message.get_param("charset") and str(message.get_param("charset"))


def _decode(body: bytes, charset: str | None) -> str:
    return body.decode(_known(charset) or "utf-8", errors="replace")


def _known(charset: str | None) -> str | None:
    if charset is None:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if name.startswith(_CHARSETS) else None
