"""The wire form of Google's Gemini API, for the model server."""

import asyncio
import json
from collections.abc import Iterator

from tests.support.servers.replies import Json, Part, Status, Stream
from tests.support.servers.wire import chunk

_FINISH_REASONS = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}


class Gemini:
    """The Gemini API."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Stream, model: str, number: int) -> None:
        self._writer, self._reply, self._model = writer, reply, model

    @staticmethod
    def messages(body: Json) -> Iterator[tuple[str, str]]:
        for content in body["contents"]:
            role = "assistant" if content["role"] == "model" else "user"
            yield role, "".join(part.get("text", "") for part in content["parts"])

    @staticmethod
    def error(reply: Status) -> Json:
        return {"error": {"code": reply.code, "message": reply.message, "status": reply.type}}

    async def start(self) -> None:
        return

    async def part(self, part: Part) -> None:
        match part.kind:
            case "text":
                for piece in part.value:
                    await self._send([{"text": piece}])
            case "thinking":
                for piece in part.value:
                    await self._send([{"text": piece, "thought": True}])
            case "tool":
                _, tool, given = part.value
                await self._send([{"functionCall": {"name": tool, "args": given}}])
            case _:
                raise ValueError(f"There is no part {part.kind!r}")

    async def end(self, reason: str) -> None:
        given = self._reply.usage
        cached = given.get("cache_read_input_tokens", 0)
        read, produced = given.get("input_tokens", 0) + cached, given.get("output_tokens", 0)
        usage = {
            "promptTokenCount": read,
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": produced,
            "totalTokenCount": read + produced,
        }
        await self._send([{"text": ""}], finish=_FINISH_REASONS.get(reason, "STOP"), usageMetadata=usage)

    async def _send(self, parts: list[Json], *, finish: str | None = None, **more: Json) -> None:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish is not None:
            candidate["finishReason"] = finish
        body = {"candidates": [candidate], "modelVersion": self._model, **more}
        await chunk(self._writer, f"data: {json.dumps(body)}\r\n\r\n".encode())
