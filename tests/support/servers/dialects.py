"""The wire forms of model servers: the Messages API, chat completions, the Responses API; and the choice of one."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Protocol

from nova_workers.sdk.testing.strict.signatures import sign
from tests.support.servers.gemini_dialect import Gemini
from tests.support.servers.replies import Json, Part, Status, Stream
from tests.support.servers.wire import chunk, event

_FINISH_REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


class Dialect(Protocol):
    """One response in one wire form."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Stream, model: str, number: int) -> None: ...

    @staticmethod
    def messages(body: Json) -> Iterator[tuple[str, str]]:
        """Return role and text of each message of a request's conversation; tool results are the user's."""
        ...

    @staticmethod
    def error(reply: Status) -> Json:
        """Return the body of an error."""
        ...

    async def start(self) -> None:
        """Send what comes before the parts."""
        ...

    async def part(self, part: Part) -> None:
        """Send a part."""
        ...

    async def end(self, reason: str) -> None:
        """Send what follows the parts; `reason` is in the words of the Messages API."""
        ...


def dialect_of(path: str) -> type[Dialect]:
    """Return the wire form of a request's path."""
    if path.endswith("/chat/completions"):
        return Chat
    if ":streamGenerateContent" in path:
        return Gemini
    return Responses if path.endswith("/responses") else Messages


class Messages:
    """The Messages API."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Stream, model: str, number: int) -> None:
        self._writer, self._reply, self._model, self._number = writer, reply, model, number
        self._index = 0

    @staticmethod
    def messages(body: Json) -> Iterator[tuple[str, str]]:
        for message in body["messages"]:
            if message["role"] != "system":
                yield message["role"], _text(message["content"])

    @staticmethod
    def error(reply: Status) -> Json:
        return {"type": "error", "error": {"type": reply.type, "message": reply.message}}

    async def start(self) -> None:
        start = {key: value for key, value in self._reply.usage.items() if key != "output_tokens_details"}
        message = {
            # As the provider does: clients may distinguish responses by their ids.
            "id": f"msg_{self._number}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": start | {"output_tokens": 1},
        }
        await event(self._writer, "message_start", {"message": message})

    async def part(self, part: Part) -> None:
        match part.kind:
            case "block":
                block, deltas = part.value
                await self._block(block, deltas)
            case "text":
                await self._block({"type": "text", "text": ""}, _deltas("text_delta", "text", part.value))
            case "thinking":
                block = {"type": "thinking", "thinking": "", "signature": ""}
                signature = {"type": "signature_delta", "signature": sign("".join(part.value))}
                await self._block(block, [*_deltas("thinking_delta", "thinking", part.value), signature])
            case "tool":
                call_id, name, given = part.value
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                await self._block(block, _deltas("input_json_delta", "partial_json", _argument_pieces(given)))
            case _:
                raise ValueError(f"There is no part {part.kind!r}")

    async def end(self, reason: str) -> None:
        delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": self._reply.stop_details}
        await event(self._writer, "message_delta", {"delta": delta, "usage": self._reply.usage})
        await event(self._writer, "message_stop", {})

    async def _block(self, block: Json, deltas: list[Json]) -> None:
        index, self._index = self._index, self._index + 1
        await event(self._writer, "content_block_start", {"index": index, "content_block": block})
        for delta in deltas:
            await event(self._writer, "content_block_delta", {"index": index, "delta": delta})
        await event(self._writer, "content_block_stop", {"index": index})


class Chat:
    """Chat completions."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Stream, model: str, number: int) -> None:
        self._writer, self._reply = writer, reply
        self._head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}
        self._calls = 0

    @staticmethod
    def messages(body: Json) -> Iterator[tuple[str, str]]:
        for role, text in Messages.messages(body):
            yield "user" if role == "tool" else role, text

    @staticmethod
    def error(reply: Status) -> Json:
        return {"error": {"type": reply.type, "message": reply.message, "param": None, "code": reply.detail}}

    async def start(self) -> None:
        await self._delta({"role": "assistant", "content": ""})

    async def part(self, part: Part) -> None:
        match part.kind:
            case "text":
                for piece in part.value:
                    await self._delta({"content": piece})
            case "thinking":
                for piece in part.value:
                    await self._delta({"reasoning_content": piece})
            case "delta":
                await self._delta(part.value)
            case "tool":
                call_id, name, given = part.value
                index, self._calls = self._calls, self._calls + 1
                begun = {"index": index, "id": call_id, "type": "function"}
                await self._delta({"tool_calls": [{**begun, "function": {"name": name, "arguments": ""}}]})
                for piece in _argument_pieces(given):
                    await self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            case _:
                raise ValueError(f"There is no part {part.kind!r}")

    async def end(self, reason: str) -> None:
        await self._delta({}, finish=_FINISH_REASONS.get(reason, reason))
        given = self._reply.usage
        if given:
            cached, written = given.get("cache_read_input_tokens", 0), given.get("cache_creation_input_tokens", 0)
            thoughts = given.get("output_tokens_details", {}).get("thinking_tokens", 0)
            read = given["input_tokens"] + cached + written
            usage = {
                "prompt_tokens": read,
                "completion_tokens": given["output_tokens"],
                "total_tokens": read + given["output_tokens"],
                "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
                "completion_tokens_details": {"reasoning_tokens": thoughts},
            }
            await self._send({**self._head, "choices": [], "usage": usage})
        await chunk(self._writer, b"data: [DONE]\n\n")

    async def _delta(self, delta: Json, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self._send({**self._head, "choices": [choice]})

    async def _send(self, data: Json) -> None:
        await chunk(self._writer, f"data: {json.dumps(data)}\n\n".encode())


class Responses:
    """The Responses API."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Stream, model: str, number: int) -> None:
        self._writer, self._reply, self._number = writer, reply, number
        self._response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model, "tools": []}
        self._output: list[Json] = []
        self._sequence = 0

    @staticmethod
    def messages(body: Json) -> Iterator[tuple[str, str]]:
        roles = {"function_call": "assistant", "reasoning": "assistant", "function_call_output": "user"}
        for item in body["input"]:
            yield item.get("role") or roles[item["type"]], _text(item.get("content") or "")

    @staticmethod
    def error(reply: Status) -> Json:
        return Chat.error(reply)

    async def start(self) -> None:
        for kind in ("response.created", "response.in_progress"):
            await self._send(kind, response={**self._response, "status": "in_progress", "output": []})

    async def part(self, part: Part) -> None:
        index = len(self._output)
        name = f"{self._number}_{index}"
        match part.kind:
            case "text":
                at = {"item_id": f"msg_{name}", "output_index": index, "content_index": 0}
                item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": []}
                said = {"type": "output_text", "text": "".join(part.value), "annotations": []}
                await self._begin(item)
                for piece in part.value:
                    await self._send("response.output_text.delta", **at, delta=piece, logprobs=[])
                await self._send("response.output_text.done", **at, text=said["text"], logprobs=[])
                await self._done({**item, "content": [said], "status": "completed"})
            case "thinking":
                at = {"item_id": f"rs_{name}", "output_index": index, "summary_index": 0}
                item = {"type": "reasoning", "id": f"rs_{name}", "summary": []}
                said = {"type": "summary_text", "text": "".join(part.value)}
                await self._begin(item)
                await self._send("response.reasoning_summary_part.added", **at, part={**said, "text": ""})
                for piece in part.value:
                    await self._send("response.reasoning_summary_text.delta", **at, delta=piece)
                await self._done({**item, "summary": [said], "encrypted_content": f"enc_{name}"})
            case "tool":
                call_id, tool, given = part.value
                at = {"item_id": f"fc_{name}", "output_index": index}
                item = {"type": "function_call", "id": f"fc_{name}", "call_id": call_id, "name": tool, "arguments": ""}
                if "/" in tool:
                    item["namespace"], _, item["name"] = tool.partition("/")
                pieces = _argument_pieces(given)
                await self._begin(item)
                for piece in pieces:
                    await self._send("response.function_call_arguments.delta", **at, delta=piece)
                await self._done({**item, "arguments": "".join(pieces), "status": "completed"})
            case "item":
                await self._begin(part.value)
                await self._done(part.value)
            case _:
                raise ValueError(f"There is no part {part.kind!r}")

    async def end(self, reason: str) -> None:
        given = self._reply.usage
        cached, written = given.get("cache_read_input_tokens", 0), given.get("cache_creation_input_tokens", 0)
        read = given.get("input_tokens", 0) + cached + written
        produced = given.get("output_tokens", 0)
        thoughts = given.get("output_tokens_details", {}).get("thinking_tokens", 0)
        usage = {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens": produced,
            "output_tokens_details": {"reasoning_tokens": thoughts},
            "total_tokens": read + produced,
        }
        why = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}.get(reason)
        status = "failed" if self._reply.error else "incomplete" if why else "completed"
        response = {
            **self._response,
            "status": status,
            "incomplete_details": {"reason": why} if why else None,
            "error": self._reply.error,
            "output": self._output,
            "usage": usage if given else None,
        }
        await self._send(f"response.{status}", response=response)

    async def _begin(self, item: Json) -> None:
        added = {**item, "status": "in_progress"}
        await self._send("response.output_item.added", output_index=len(self._output), item=added)

    async def _done(self, item: Json) -> None:
        await self._send("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    async def _send(self, kind: str, **data: Any) -> None:
        await event(self._writer, kind, {**data, "sequence_number": self._sequence})
        self._sequence += 1


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _deltas(kind: str, key: str, pieces: list[str]) -> list[Json]:
    return [{"type": kind, key: piece} for piece in pieces]


def _argument_pieces(given: Any) -> list[str]:
    """Return a call's arguments in two pieces; text is sent as it is, in one."""
    if isinstance(given, str):
        return [given]
    text = json.dumps(given)
    half = len(text) // 2
    return [text[:half], text[half:]]
