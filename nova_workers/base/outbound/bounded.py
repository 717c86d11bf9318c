"""Bounds on what servers send: one place for all HTTP clients of a worker.

An HTTP client reads bodies whole, unpacks without a bound (a chunk of 64 KB can become 64 MB), and the readers of event
streams join a line from any number of pieces. `bound_responses` puts itself between: it unpacks in small pieces,
counts, and ends a response that exceeds its bounds like a broken connection.
"""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import httpx2

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.outbound.bodies import Unpack, unpacker

_PIECE_BYTES: Final = 65_536
_MODEL_TIMEOUTS: Final = 6
"""A model's response that trickles ends after so many timeouts of a request: an hour."""


@dataclass(frozen=True, slots=True)
class ResponseBounds:
    """The most that is taken of one response, as sent and as unpacked.

    Attributes:
        body_bytes: Of a body, which is read as a whole.
        stream_bytes: Of an event stream, of which little is kept.
        line_bytes: Of a line of an event stream.
        total_s: Time from the headers to the end. None leaves that to the reader.
    """

    body_bytes: int = 8_000_000
    stream_bytes: int = 64_000_000
    line_bytes: int = 8_000_000
    total_s: float | None = None

    @classmethod
    def of_model(cls, request_timeout_s: float) -> "ResponseBounds":
        """Return the bounds of a model's response, whose timeout of a request applies to each silence in it."""
        return cls(total_s=_MODEL_TIMEOUTS * request_timeout_s)


def bound_responses(client: httpx2.AsyncClient, bounds: ResponseBounds) -> None:
    """Hold every response that a client gets in bounds. One that exceeds them raises `httpx2.RemoteProtocolError`."""

    async def bound(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an async client has no other
        try:
            unpack = unpacker(response.headers.get("content-encoding", ""))
        except OutboundFailed as error:
            raise httpx2.DecodingError(error.message) from error
        is_stream = response.headers.get("content-type", "").strip().lower().startswith("text/event-stream")
        response.stream = _BoundedStream(response.stream, unpack, bounds, is_stream=is_stream)
        # It is unpacked already, and so no longer what these describe.
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)

    client.headers["Accept-Encoding"] = "gzip, deflate"
    client.event_hooks = {**client.event_hooks, "response": [bound, *client.event_hooks["response"]]}


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx2.AsyncByteStream, unpack: Unpack | None, bounds: ResponseBounds, *, is_stream: bool
    ) -> None:
        self._inner = inner
        self._unpack = unpack
        self._max_bytes = bounds.stream_bytes if is_stream else bounds.body_bytes
        self._max_line_bytes = bounds.line_bytes if is_stream else self._max_bytes
        self._total_s = bounds.total_s
        self._received = self._unpacked = self._line_bytes = 0

    @property
    def elapsed(self) -> timedelta | None:
        """The time that the stream of the client states."""
        return getattr(self._inner, "elapsed", None)

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        end_s = None if self._total_s is None else time.monotonic() + self._total_s
        stream = self._inner.__aiter__()
        try:
            async for chunk in stream:
                if end_s is not None and time.monotonic() > end_s:
                    raise httpx2.ReadTimeout(f"The response took longer than {self._total_s:g} s.")
                self._received += len(chunk)
                # Also of what unpacks to nothing, as bytes after the end of a packed body do.
                self._check_length(self._received)
                piece = self._unpacked_piece(chunk)
                while piece:
                    self._count(piece)
                    yield piece
                    piece = self._unpacked_piece(b"")
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _unpacked_piece(self, chunk: bytes) -> bytes:
        if self._unpack is None:
            return chunk
        try:
            return self._unpack(chunk, _PIECE_BYTES)
        except OutboundFailed as error:
            raise httpx2.DecodingError(error.message) from error

    def _count(self, piece: bytes) -> None:
        self._unpacked += len(piece)
        self._check_length(self._unpacked)
        # A line ends with either of two characters.
        at = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._line_bytes = len(piece) - at - 1 + (self._line_bytes if at < 0 else 0)
        if self._line_bytes > self._max_line_bytes:
            raise httpx2.RemoteProtocolError(f"A line of the response is longer than {self._max_line_bytes} bytes.")

    def _check_length(self, length: int) -> None:
        if length > self._max_bytes:
            raise httpx2.RemoteProtocolError(f"The response is longer than {self._max_bytes} bytes.")
