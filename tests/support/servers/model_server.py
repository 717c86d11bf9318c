"""A model server on loopback that speaks the wire of the Messages API, and misbehaves on request.

It is written on bare sockets because a web framework would repair what the tests need broken: streams that stall, that
end in mid-event, that close without a response. What a well-behaved server sends is tested with `fakellm` as well,
which we did not write.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Drop", "Hang", "ModelServer", "Part", "Reply", "Status", "Stream", "model_server"]

Json = dict[str, Any]

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_test\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True)
class Part:
    """One part of a stream.

    kind: ``text`` (value: pieces), ``thinking`` (pieces), ``tool`` (id, name, input), ``stall`` (until the client
    leaves), ``sleep`` (seconds), ``cut`` (close the connection), ``end`` (end the response well, in mid-message),
    ``raw`` (bytes), ``event`` (name, data), ``block`` (the block as it starts, its deltas), ``wait`` (an event).
    """

    kind: str
    value: Any = None


@dataclass(frozen=True)
class Stream:
    """A streamed response."""

    parts: tuple[Part, ...]
    stop_reason: str | None = None
    """None is ``tool_use`` with a tool among the parts, else ``end_turn``."""
    usage: Json = field(default_factory=lambda: {"input_tokens": 10, "output_tokens": 5})
    model: str | None = None
    stop_details: Json | None = None
    begins: asyncio.Event | None = None
    """What it waits for before its first byte."""


@dataclass(frozen=True)
class Status:
    """A response that is an error."""

    code: int
    type: str = "api_error"
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Drop:
    """No response: the connection closes without a response."""


@dataclass(frozen=True)
class Hang:
    """No response, and the connection stays open; with `pings` it looks alive, as behind a proxy."""

    pings: bool = False


Reply = Stream | Status | Drop | Hang
Asks = Callable[[Mapping[str, str], Json], bool]
"""Whether a rule applies to a request with these headers and body."""


class ModelServer:
    """Answers requests with the given replies in order, and repeats the last one."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.left = asyncio.Event()
        """Set when a client closed the connection on a stalled stream."""
        self._replies: list[Reply] = []
        self._by_message: dict[str, list[Reply]] = {}
        self._rules: list[tuple[Asks, list[Reply]]] = []

    def reply(self, *replies: Reply) -> None:
        """Answer with these from now on."""
        self._replies = list(replies)

    def reply_to(self, message: str, *replies: Reply) -> None:
        """Answer the conversation that has `message` as a user's text with these."""
        self._by_message[message] = list(replies)

    def reply_when(self, asks: Asks, *replies: Reply) -> None:
        """Answer requests that `asks` selects with these; the first rule wins, before all other replies."""
        self._rules.append((asks, list(replies)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body: Json = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
        self.headers.append(headers)
        self.requests.append(body)
        reply = self._next(headers, body)
        if isinstance(reply, Drop):
            return False
        if isinstance(reply, Hang):
            await self._hang(reader, writer, reply)
            return False
        if isinstance(reply, Status):
            await _send_status(writer, reply)
            return True
        return await self._send_stream(reader, writer, reply, body["model"])

    async def _hang(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Hang) -> None:
        if reply.pings:
            writer.write(_STREAM_HEAD)
        leaving = asyncio.create_task(reader.read(1))
        while not leaving.done():
            if reply.pings:
                await _event(writer, "ping", {})
            await asyncio.wait((leaving,), timeout=0.02)
        self.left.set()

    def _next(self, headers: Mapping[str, str], body: Json) -> Reply:
        for asks, ruled in self._rules:
            if asks(headers, body):
                return ruled.pop(0) if len(ruled) > 1 else ruled[0]
        replies = self._replies
        for message in body["messages"]:
            content = message["content"]
            text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
            replies = self._by_message.get(text, replies)
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async def _send_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Stream, model: str
    ) -> bool:
        if reply.begins is not None:
            await reply.begins.wait()
        writer.write(_STREAM_HEAD)
        start = {key: value for key, value in reply.usage.items() if key != "output_tokens_details"} | {
            "output_tokens": 1
        }
        message = {
            # As the provider does: clients may distinguish responses by their ids.
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": reply.model or model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": start,
        }
        await _event(writer, "message_start", {"message": message})
        index = 0
        for part in reply.parts:
            if part.kind == "cut":
                return False
            if part.kind == "end":
                writer.write(b"0\r\n\r\n")
                return True
            if part.kind == "stall":
                await reader.read(1)
                self.left.set()
                return False
            await _send_part(writer, index, part)
            index += part.kind in ("text", "thinking", "tool", "block")
        tools = any(part.kind == "tool" for part in reply.parts)
        reason = reply.stop_reason or ("tool_use" if tools else "end_turn")
        delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": reply.stop_details}
        await _event(writer, "message_delta", {"delta": delta, "usage": reply.usage})
        await _event(writer, "message_stop", {})
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def model_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the block, on a free port of loopback."""
    model = ModelServer()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(model.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_part(writer: asyncio.StreamWriter, index: int, part: Part) -> None:
    match part.kind:
        case "sleep":
            await asyncio.sleep(part.value)
        case "wait":
            await part.value.wait()
        case "block":
            block, deltas = part.value
            await _event(writer, "content_block_start", {"index": index, "content_block": block})
            for delta in deltas:
                await _event(writer, "content_block_delta", {"index": index, "delta": delta})
            await _event(writer, "content_block_stop", {"index": index})
        case "raw":
            await _chunk(writer, part.value)
        case "event":
            await _event(writer, *part.value)
        case "text":
            await _block(writer, index, {"type": "text", "text": ""}, "text_delta", "text", part.value)
        case "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
            await _block(writer, index, block, "thinking_delta", "thinking", part.value, signature="sig")
        case "tool":
            call_id, name, given = part.value
            pieces = [given] if isinstance(given, str) else _pieces(json.dumps(given))
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            await _block(writer, index, block, "input_json_delta", "partial_json", pieces)
        case _:
            raise ValueError(f"There is no part {part.kind!r}")


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [text[:half], text[half:]]


async def _block(
    writer: asyncio.StreamWriter,
    index: int,
    block: Json,
    delta: str,
    key: str,
    pieces: list[str],
    signature: str | None = None,
) -> None:
    await _event(writer, "content_block_start", {"index": index, "content_block": block})
    for piece in pieces:
        await _event(writer, "content_block_delta", {"index": index, "delta": {"type": delta, key: piece}})
    if signature is not None:
        sign = {"type": "signature_delta", "signature": signature}
        await _event(writer, "content_block_delta", {"index": index, "delta": sign})
    await _event(writer, "content_block_stop", {"index": index})


async def _event(writer: asyncio.StreamWriter, name: str, data: Json) -> None:
    await _chunk(writer, f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _send_status(writer: asyncio.StreamWriter, reply: Status) -> None:
    body = json.dumps({"type": "error", "error": {"type": reply.type, "message": reply.message}}).encode()
    extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    head = f"HTTP/1.1 {reply.code} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
