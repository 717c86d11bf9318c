"""Requests that no HTTP client would send: incomplete, too large, too slow."""

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_CONNECT_S: Final = 10.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a server did with a request.

    Attributes:
        status: Of its answer; None without one.
        silent: Whether it neither answered nor closed the connection in time.
    """

    status: int | None
    silent: bool
    after_s: float

    def __str__(self) -> str:
        if self.silent:
            return f"neither answered nor closed within {self.after_s:.1f} s"
        did = "closed without an answer" if self.status is None else f"answered {self.status}"
        return f"{did} after {self.after_s:.1f} s"


def loopback(url: str) -> bool:
    """Return whether a URL leads to this machine only."""
    return urlsplit(url).hostname in _LOOPBACK


def written(url: str, method: str, path: str, **headers: str) -> bytes:
    """Return the head of a request to a path below a base URL, as bytes. An underscore stands for a hyphen."""
    parts = urlsplit(url)
    given = {"host": parts.netloc, "connection": "close"} | {k.replace("_", "-"): v for k, v in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {parts.path.rstrip('/')}{path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


async def send_raw(url: str, data: bytes, *, wait_s: float) -> Outcome:
    """Send bytes to the server of a URL, and wait for the status of its answer, or its end of the connection.

    Raises:
        OSError: There is no connection to the server.
    """
    parts = urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if secure else 80), ssl=secure
        )
    began_s = time.monotonic()
    status: int | None = None
    try:
        # Read while it is sent: an answer may come before the last byte was taken.
        writer.write(data)
        async with asyncio.timeout(wait_s):
            words = (await reader.readline()).split()
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
    except TimeoutError:
        return Outcome(None, silent=True, after_s=wait_s)
    except ConnectionError:
        # A server that refuses need not read the rest.
        pass
    finally:
        writer.transport.abort()
    return Outcome(status, silent=False, after_s=time.monotonic() - began_s)
