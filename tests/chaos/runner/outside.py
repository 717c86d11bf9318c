"""What is outside of the fleet, as one process: a model server, a tool server, an embedding server, a webhook receiver.

    python -m tests.chaos.runner.outside --model-port 9001 --web-port 9002 --record outside.jsonl

The model executes *plans*. A message ``PLAN {"name": "p1", "steps": [{"words": 50, "tool": true}, …]}`` is answered
with these steps, each a text whose words name plan, step and place, with a call of the tool ``record`` where the step
has one. A message ``STEER s1;`` is answered with ``ack:s1;`` in the next response. All of it follows from the
conversation alone, so that a repeated request gets an equal answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.chaos.history import PLAIN_ANSWER, Recorder, text_of_step
from tests.support.servers.asgi import loopback_listener
from tests.support.servers.dialects import Dialect
from tests.support.servers.model_server import ModelServer
from tests.support.servers.replies import Part, Reply, Stream

Json = dict[str, Any]

TOOL = "mcp__outside__record"
GUEST_TOOL = "mcp__outside__record_guest"
_PROPOSAL = {"targetKey": "title", "rationale": "It is shorter", "confidence": 0.9, "risks": [], "assumptions": []}
ROLES = {
    "craft": json.dumps({**_PROPOSAL, "value": "Draft"}),
    "review": json.dumps({"approve": True, "best": 0, "confidence": 0.8, "issues": []}),
    "general": json.dumps({**_PROPOSAL, "value": "Final"}),
}
"""What the model answers to each role of a work order."""
_ROLE = re.compile(r"The role (\w+)\.")
_PLAN = re.compile(r"PLAN (\{.*\})")
_STEER = re.compile(r"STEER ([\w-]+);")
_PIECE_WORDS = 5
_DIMENSIONS = 8


def plan_message(name: str, steps: list[Json]) -> str:
    """Return the message that the model answers with these steps.

    Args:
        name: Of the plan; names words, calls and executions.
        steps: Each has ``words``, and may have ``tool`` (true), ``tool_s`` (how long it executes), ``asks`` (true: it
            asks a person) and ``pace_s`` (the pause after every five words).
    """
    return f"PLAN {json.dumps({'name': name, 'steps': steps})}"


def steer_message(name: str) -> str:
    """Return a message that the model acknowledges by its name."""
    return f"STEER {name};"


@dataclass
class _Conversation:
    """What a model request asks for: a step of the latest plan, and the messages to acknowledge."""

    name: str = ""
    steps: list[Json] = field(default_factory=list[Json])
    step: int = 0
    steered: list[str] = field(default_factory=list[str])
    role: str = ""
    """Of a work order, which the conversation plays."""

    @classmethod
    def read(cls, body: Json) -> _Conversation:
        now = cls()
        for message in body["messages"]:
            if message["role"] == "assistant":
                now.step += 1
                now.steered = []
            else:
                for text in _texts(message["content"]):
                    now._hear(text)
        return now

    def _hear(self, text: str) -> None:
        if plan := _PLAN.search(text):
            asked = json.loads(plan[1])
            self.name, self.steps, self.step, self.steered = asked["name"], asked["steps"], 0, []
        if role := _ROLE.search(text):
            self.role = role[1]
        self.steered += _STEER.findall(text)

    def parts(self) -> Iterator[Part]:
        if self.role:
            yield Part("text", [ROLES[self.role]])
            return
        acknowledged = [f"ack:{name}; " for name in self.steered]
        if acknowledged:
            yield Part("text", acknowledged)
        if self.step >= len(self.steps):
            if not acknowledged:
                yield Part("text", [PLAIN_ANSWER])
            return
        asked = self.steps[self.step]
        words = text_of_step(self.name, self.step, asked["words"])
        for at in range(0, len(words), _PIECE_WORDS):
            yield Part("text", words[at : at + _PIECE_WORDS])
            if pace_s := asked.get("pace_s"):
                yield Part("sleep", pace_s)
        if asked.get("asks"):
            question = {"question": f"What comes after {self.name}.{self.step}?"}
            yield Part("tool", (f"toolu_{self.name}_{self.step}", "ask_user", question))
        elif asked.get("tool"):
            key = f"{self.name}:{self.step}"
            yield Part("tool", (f"toolu_{self.name}_{self.step}", TOOL, {"key": key, "for_s": asked.get("tool_s", 0)}))


def _texts(content: str | list[Json]) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for block in content:
        if block["type"] == "text":
            yield block["text"]


class PlannedModel(ModelServer):
    """Answers every request from its conversation."""

    def _next(self, headers: Mapping[str, str], body: Json, speaks: type[Dialect]) -> Reply:
        # Only their number matters here, and conversations are long.
        self.requests[-1], self.headers[-1] = {}, {}
        if not body.get("tools") and any(
            "conversation>" in text for m in body["messages"] for text in _texts(m["content"])
        ):
            return Stream((Part("text", ["A planned conversation"]),))
        return Stream(tuple(_Conversation.read(body).parts()))


def _web_app(recorder: Recorder) -> Any:
    server = MCPServer("outside")

    @server.tool()
    async def record(key: str, for_s: float = 0) -> str:
        """Record that the call was executed, and take a while."""
        recorder.write("tool", key=key)
        await asyncio.sleep(for_s)
        return f"recorded {key}"

    @server.tool()
    async def record_guest(key: str) -> str:
        """Record that a call that was decided upon was executed."""
        recorder.write("guest_tool", key=key)
        return f"recorded {key}"

    async def embeddings(request: Request) -> Response:
        texts = (await request.json())["input"]
        return JSONResponse({"data": [{"index": at, "embedding": [0.5] * _DIMENSIONS} for at in range(len(texts))]})

    async def hook(request: Request) -> Response:
        event = await request.json()
        recorder.write(
            "hook", delivery=request.headers["webhook-id"], run=event["data"].get("run_id"), type=event["type"]
        )
        return Response(status_code=204)

    app = server.streamable_http_app()
    app.router.routes += [
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/hook", hook, methods=["POST"]),
    ]
    return app


async def _serve(model_port: int, web_port: int, path: Path) -> None:
    with Recorder(path) as recorder:
        model = PlannedModel()
        config = uvicorn.Config(_web_app(recorder), log_config=None, access_log=False, timeout_graceful_shutdown=0)
        async with await asyncio.start_server(model.serve, "127.0.0.1", model_port):
            await uvicorn.Server(config).serve(sockets=[loopback_listener(web_port)])


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-port", type=int, required=True)
    parser.add_argument("--web-port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(_serve(given.model_port, given.web_port, given.record))


if __name__ == "__main__":
    main()
