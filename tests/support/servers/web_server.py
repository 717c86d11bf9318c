"""A web server on loopback that sends exactly the given bytes, for tests of requests to untrusted hosts."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

Page = bytes | Callable[[], bytes]

_LENGTH = re.compile(r"(?i)\r\ncontent-length: *(\d+)\r\n")


class WebServer:
    """Answers each path with its page; closes the connection after each."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, Page] = {}
        self.heads: list[str] = []
        """The heads of all requests."""
        self.bodies: list[bytes] = []
        """Their bodies, of the length that they declare."""
        self.left = asyncio.Event()
        """Set when a client closed the connection on a page that never ends, or before it had one."""

    def page(self, path: str, page: Page) -> None:
        """Answer `path` with these bytes from now on. A page without an end (`b"…"` only) is kept open."""
        self.pages[path] = page

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            length = _LENGTH.search(head)
            self.bodies.append(await reader.readexactly(int(length[1])) if length else b"")
            page = self.pages.get(head.split(" ")[1], reply(b"no", status="404 Not Found"))
            page = page if isinstance(page, bytes) else page()
            keep_open = page.endswith(b"<stall>")
            for at in range(0, len(page), 65_536):
                writer.write(page[at : at + 65_536])
                await writer.drain()
            if keep_open:
                await reader.read(1)
                self.left.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            # A client that closes while it has not read all resets the connection.
            self.left.set()
        writer.close()


def reply(body: bytes, *, status: str = "200 OK", kind: str = "text/plain", **headers: str) -> bytes:
    """Return a whole response. Names of headers have underscores for hyphens."""
    given = {"content_type": kind, "content_length": str(len(body)), "connection": "close"} | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def redirect(to: str, status: str = "302 Found") -> bytes:
    """Return a redirect."""
    return reply(b"", status=status, location=to)


@asynccontextmanager
async def web_server(
    *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[WebServer]:
    """Run a server for the block, on a free port of loopback."""
    web = WebServer()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(web.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, port, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
