"""A model server on loopback that speaks four wire forms, by the path of a request, and misbehaves on request.

It is written on bare sockets because a web framework would repair what the tests need broken: streams that stall, that
end in mid-event, that close without a response. What a well-behaved server sends is tested with `fakellm` as well,
which we did not write.

It refuses what the real providers refuse (`tests.support.servers.strict`), whatever a test wants it to answer, and a
test in which it did so fails unless it says that it may.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.servers.dialects import Dialect, dialect_of
from tests.support.servers.replies import Drop, Hang, Part, Reply, Status, Stream
from tests.support.servers.strict import refusal_of, refusal_of_tool
from tests.support.servers.wire import chunk, event

__all__ = ["Asks", "Drop", "Hang", "ModelServer", "Part", "Reply", "Status", "Stream", "model_server"]

Json = dict[str, Any]

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_test\r\ntransfer-encoding: chunked\r\n\r\n"
)


Asks = Callable[[Mapping[str, str], Json], bool]
"""Whether a rule applies to a request with these headers and body."""


class ModelServer:
    """Answers requests with the given replies in order, and repeats the last one."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.refused: list[str] = []
        """Why requests were refused that no provider would take."""
        self.refuses_tool: str | None = None
        """A tool because of which a request is refused, although nothing is wrong with it."""
        self.also_takes: frozenset[str] = frozenset()
        """Fields of chat completions that this server takes, and OpenAI does not know."""
        self.may_refuse = False
        """Whether the test sends such requests on purpose."""
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

    def conversation(self, at: int = -1) -> list[tuple[str, str]]:
        """Return roles and texts of a request's conversation; neighbours of one role are one message."""
        told = list(dialect_of(self.paths[at]).messages(self.requests[at]))
        return [
            (role, "".join(text for _, text in group)) for role, group in itertools.groupby(told, lambda each: each[0])
        ]

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
        if head[0].startswith("GET "):
            await _send_status(writer, Status(404), {})
            return True
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        body: Json = json.loads(raw)
        self.headers.append(headers)
        self.requests.append(body)
        path = head[0].split(" ")[1]
        self.paths.append(path)
        speaks = dialect_of(path)
        refusal = refusal_of(path, headers, body, len(raw), self.also_takes)
        if refusal is not None:
            self.refused.append(refusal.message)
        if refusal is None and self.refuses_tool is not None:
            refusal = refusal_of_tool(path, body, self.refuses_tool)
        reply = refusal or self._next(headers, body, speaks)
        if isinstance(reply, Drop):
            return False
        if isinstance(reply, Hang):
            await self._hang(reader, writer, reply)
            return False
        if isinstance(reply, Status):
            await _send_status(writer, reply, speaks.error(reply))
            return True
        dialect = speaks(writer, reply, reply.model or body.get("model", "gemini"), len(self.requests))
        return await self._send_stream(reader, writer, reply, dialect)

    async def _hang(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Hang) -> None:
        if reply.pings:
            writer.write(_STREAM_HEAD)
        leaving = asyncio.create_task(reader.read(1))
        try:
            while not leaving.done():
                if reply.pings:
                    await event(writer, "ping", {})
                await asyncio.wait((leaving,), timeout=0.02)
        finally:
            # A ping to a client that has just left fails.
            self.left.set()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    def _next(self, headers: Mapping[str, str], body: Json, speaks: type[Dialect]) -> Reply:
        for asks, ruled in self._rules:
            if asks(headers, body):
                return ruled.pop(0) if len(ruled) > 1 else ruled[0]
        replies = self._replies
        for _, text in speaks.messages(body):
            replies = self._by_message.get(text, replies)
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async def _send_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Stream, dialect: Dialect
    ) -> bool:
        if reply.begins is not None:
            await reply.begins.wait()
        writer.write(_STREAM_HEAD)
        await dialect.start()
        for part in reply.parts:
            match part.kind:
                case "cut":
                    return False
                case "end":
                    writer.write(b"0\r\n\r\n")
                    return True
                case "stall":
                    await reader.read(1)
                    self.left.set()
                    return False
                case "sleep":
                    await asyncio.sleep(part.value)
                case "wait":
                    await part.value.wait()
                case "raw":
                    await chunk(writer, part.value)
                case "event":
                    await event(writer, *part.value)
                case _:
                    await dialect.part(part)
        tools = any(part.kind == "tool" for part in reply.parts)
        await dialect.end(reply.stop_reason or ("tool_use" if tools else "end_turn"))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def model_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the block, on a free port of loopback.

    Raises:
        AssertionError: It was sent a request that no provider would take.
    """
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
        assert model.may_refuse or not model.refused, f"a provider would refuse: {model.refused}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_status(writer: asyncio.StreamWriter, reply: Status, error: Json) -> None:
    body = json.dumps(error).encode() if reply.raw is None else reply.raw
    extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    head = f"HTTP/1.1 {reply.code} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
