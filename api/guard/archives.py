"""Exports and imports: few at once, each with deadlines, since each holds a connection to the database."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, aclosing, contextmanager

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.http_server.errors import RequestTooSlow
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.http.archive import MEDIA_TYPE

from ..boundary import until_gone
from ..errors import TooManyArchives

_log = structlog.get_logger(__name__)

IMPORT_PATH = "/v1/import"
_PIECE_BYTES = 65_536
_RETRY_AFTER_S = 30.0


class ArchivePermits:
    """Who exports or imports now: at most one of a tenant, so that one cannot keep all others from it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tenants: set[str] = set()

    @contextmanager
    def hold(self, tenant_id: str) -> Generator[None]:
        """Hold the permit of a tenant.

        Raises:
            TooManyArchives: It exports or imports already, or too many others do.
        """
        if tenant_id in self._tenants:
            raise TooManyArchives(
                "This tenant has an export or import under way. Wait for its end.", retry_after_s=_RETRY_AFTER_S
            )
        if len(self._tenants) >= self._most:
            raise TooManyArchives(
                f"{self._most} exports and imports are under way, the most at once. Try again later. The operator sets "
                "the limit with NOVA_API__ARCHIVES.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._tenants.add(tenant_id)
        try:
            yield
        finally:
            self._tenants.discard(tenant_id)


class ArchiveResponse(Response):
    """An archive in pieces, until its end, its deadline, or its client's: one that leaves, or reads nothing."""

    media_type = MEDIA_TYPE

    def __init__(self, first: bytes, lines: AsyncGenerator[bytes], *, held: ExitStack, settings: ApiSettings) -> None:
        """Take the first line, the others, and what is released at the end."""
        self._first = first
        self._lines = lines
        self._held = held
        self._settings = settings
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers()
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the archive. One that is cut has no last line, and its connection breaks."""
        leaving = asyncio.create_task(until_gone(receive))
        last = b""
        try:
            async with asyncio.timeout(self._settings.archive_timeout_s), aclosing(self._lines):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for piece in self._pieces():
                    if leaving.done():
                        return
                    await self._send(send, last)
                    last = piece
                # Before the client has the end: it may import at once. The snapshot of the lines has ended with them.
                self._held.close()
                await self._send(send, last, more=False)
        except TimeoutError:
            _log.warning("export.cut", path=scope["path"])
        finally:
            self._held.close()
            await stop_tasks([leaving])

    async def _send(self, send: Send, piece: bytes, *, more: bool = True) -> None:
        if piece or not more:
            async with asyncio.timeout(self._settings.unread_timeout_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _pieces(self) -> AsyncGenerator[bytes]:
        """Yield lines in pieces that are large enough to send efficiently."""
        piece = bytearray(self._first)
        async for line in self._lines:
            piece += line
            if len(piece) >= _PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)


async def received(request: Request, settings: ApiSettings) -> AsyncGenerator[bytes]:
    """Yield the pieces of an archive that is sent.

    Raises:
        RequestTooSlow: No piece came for too long, or the whole takes too long.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + settings.archive_timeout_s
    pieces = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(min(end_s, loop.time() + settings.body_timeout_s)):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestTooSlow(
                f"Nothing of the archive came for {settings.body_timeout_s:g} s, or it took longer than "
                f"{settings.archive_timeout_s:g} s. Nothing was imported; send it again."
            ) from None
        yield piece
