"""A model server on loopback that speaks the Anthropic wire: `fakellm` renders replies, `rules` chooses them.

The real `anthropic` engine talks to it over HTTP, so everything between the engine and the terminal is
exercised as with a real model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fakellm.responder import build_response
from fakellm.streaming import build_stream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from nova_workers.devstack.stand_in.rules import Reply, reply_to

_CHARS_A_TOKEN = 4
_START = "event: message_start\ndata: "


def create_app() -> Starlette:
    """Return the ASGI application."""
    return Starlette(
        routes=[
            Route("/v1/messages", _messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
            Route("/healthz", _healthz),
        ]
    )


async def _messages(request: Request) -> Response:
    raw = await request.body()
    body: dict[str, Any] = orjson.loads(raw)
    rule = _rule(reply_to(body))
    input_tokens = len(raw) // _CHARS_A_TOKEN
    if body.get("stream"):
        stream = _with_input_tokens(build_stream(rule, body, "anthropic"), input_tokens)
        return StreamingResponse(stream, media_type="text/event-stream")
    status, answer = build_response(rule, body, "anthropic")
    answer["usage"]["input_tokens"] = input_tokens
    return JSONResponse(answer, status)


async def _count_tokens(request: Request) -> Response:
    return JSONResponse({"input_tokens": len(await request.body()) // _CHARS_A_TOKEN})


async def _healthz(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _rule(reply: Reply) -> dict[str, Any]:
    respond: dict[str, Any] = {"content": reply.text}
    if reply.tool is not None:
        respond["tool_calls"] = [{"name": reply.tool.name, "arguments": dict(reply.tool.arguments)}]
    return {"name": "stand-in", "respond": respond}


async def _with_input_tokens(chunks: AsyncIterator[str], input_tokens: int) -> AsyncIterator[str]:
    """Pass a stream on with an estimated input size; fakellm always reports 1."""
    async for chunk in chunks:
        if chunk.startswith(_START):
            event = orjson.loads(chunk.removeprefix(_START))
            event["message"]["usage"]["input_tokens"] = input_tokens
            yield f"{_START}{orjson.dumps(event).decode()}\n\n"
        else:
            yield chunk
