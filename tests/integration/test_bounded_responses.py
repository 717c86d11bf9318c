"""Responses of hostile servers are held in bounds."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anthropic
import httpx2
import openai
import pytest

from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.engines.anthropic import credentials as anthropic_clients
from nova_workers.engines.http.connections import Connections
from nova_workers.engines.openai import clients as openai_clients
from nova_workers.engines.openai.provider import Key, OpenAIProvider
from tests.requirements import proves
from tests.support.loop_watch import watched_loop

BOUNDS = ResponseBounds(body_bytes=1_000_000, stream_bytes=4_000_000, line_bytes=200_000, total_s=60.0)
Body = Callable[[], AsyncIterator[bytes]]


@asynccontextmanager
async def _client(
    headers: str, body: Body, bounds: ResponseBounds = BOUNDS
) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """A client with bounds, and the address of a server that sends such a response until it is cut off."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 200 OK\r\n{headers}\r\nConnection: close\r\n\r\n".encode())
            async for piece in body():
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = httpx2.AsyncClient(timeout=60, trust_env=False)
    bound_responses(client, bounds)
    async with server, client:
        yield client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def _endless(piece: bytes, pause_s: float = 0.0) -> AsyncIterator[bytes]:
    while True:
        yield piece
        await asyncio.sleep(pause_s)


_PACKED = gzip.compress(bytes(64 << 20), 9)


async def _bomb() -> AsyncIterator[bytes]:
    yield _PACKED


async def _trailer() -> AsyncIterator[bytes]:
    """What follows the end of the packed content unpacks to nothing."""
    yield gzip.compress(b"{}")
    async for piece in _endless(bytes(65_536)):
        yield piece


RUDE: dict[str, tuple[str, Body, type[Exception]]] = {
    "an endless body": ("Content-Type: application/json", lambda: _endless(b"x" * 65_536), httpx2.RemoteProtocolError),
    "a packed body": ("Content-Encoding: gzip", _bomb, httpx2.RemoteProtocolError),
    "bytes after a packed body": ("Content-Encoding: gzip", _trailer, httpx2.RemoteProtocolError),
    "bytes after a packed stream": (
        "Content-Type: text/event-stream\r\nContent-Encoding: gzip",
        _trailer,
        httpx2.RemoteProtocolError,
    ),
    "an endless stream": (
        "Content-Type: text/event-stream",
        lambda: _endless(b"data: x\n\n" * 4_096),
        httpx2.RemoteProtocolError,
    ),
    "an endless line": (
        "Content-Type: text/event-stream; charset=utf-8",
        lambda: _endless(b"x" * 65_536),
        httpx2.RemoteProtocolError,
    ),
    "a packed stream": ("Content-Type: text/event-stream\r\nContent-Encoding: gzip", _bomb, httpx2.RemoteProtocolError),
    "a slow drip": ("Content-Type: text/event-stream", lambda: _endless(b"x", 0.05), httpx2.ReadTimeout),
    "another packing": ("Content-Encoding: zstd", lambda: _endless(b"x"), httpx2.DecodingError),
    "a broken packing": ("Content-Encoding: gzip", lambda: _endless(b"\x1f\x8b\xff" * 9), httpx2.DecodingError),
}


@pytest.mark.parametrize("rude", RUDE)
@proves("security.responses")
async def test_a_response_without_end_is_cut_off_and_others_are_served(rude: str) -> None:
    headers, body, error = RUDE[rude]
    bounds = replace(BOUNDS, total_s=1.0) if error is httpx2.ReadTimeout else BOUNDS
    async with _client(headers, body, bounds) as (client, url), watched_loop(max_grown_kb=60_000):
        with pytest.raises(error):
            await _read_lines(client, url)


async def _read_lines(client: httpx2.AsyncClient, url: str) -> None:
    async with asyncio.timeout(60), client.stream("GET", url) as response:
        async for _ in response.aiter_lines():
            pass


@proves("security.responses")
async def test_an_answer_of_a_model_server_without_end_is_a_failed_connection() -> None:
    headers, body, _ = RUDE["an endless body"]
    async with _client(headers, body) as (_, url):
        http = Connections(request_timeout_s=10, max_connections=1)
        profile = anthropic_clients.Profile(api_key="k", base_url=url)
        claude = anthropic_clients.Clients([profile], http, base_url=None)
        with pytest.raises(anthropic.APIConnectionError):
            await claude.of("default").models.retrieve("x")
        provider = OpenAIProvider("p", url, keys=(Key(api_key="k"),))
        gpt = openai_clients.Clients([provider], http)
        with pytest.raises(openai.APIConnectionError):
            await gpt.of("p").models.retrieve("x")
        await http.close()


@pytest.mark.parametrize("packing", ["gzip", "deflate", "raw deflate", "none"])
async def test_ordinary_responses_arrive_whole(packing: str) -> None:
    text = ("line of text\n" * 5_000).encode()
    packer = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "raw deflate": packer.compress(text) + packer.flush(),
        "none": text,
    }[packing]
    encoding = packing.removeprefix("raw ")

    async def body() -> AsyncIterator[bytes]:
        yield packed

    headers = f"Content-Length: {len(packed)}" + ("" if packing == "none" else f"\r\nContent-Encoding: {encoding}")
    async with _client(headers, body) as (client, url):
        response = await client.get(url)
        assert response.content == text
        assert response.request.headers["accept-encoding"] == "gzip, deflate"
