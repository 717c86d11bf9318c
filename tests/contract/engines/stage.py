"""The behaviour of a model in the contract suite, and its form for each engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from nova_workers.contracts.content import Message
from nova_workers.contracts.engine import (
    Engine,
    EngineCallbacks,
    EngineEvent,
    EngineOptions,
    InProcessMcpServer,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
)
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.openai import Catalog, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from nova_workers.engines.scripted import ScriptedEngine
from tests.support.servers.model_server import ModelServer, Part, Status, Stream

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    name: str
    input: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Answer:
    """One model response."""

    text: str = ""
    think: str = ""
    calls: tuple[Call, ...] = ()
    stalls: bool = False
    """After its text, it hangs."""
    fails: bool = False
    """After its text, the provider is overloaded."""
    wait_s: float = 0.0
    """Before its text."""


class Stage(Protocol):
    """An engine with a model whose responses a test sets."""

    engine: Engine
    begins_in_s: float
    """Time in which a turn surely calls its first tool."""
    at_once: int
    """Turns that may well run at the same time."""

    def options(self, answers: Sequence[Answer], **given: Any) -> EngineOptions:
        """Return options for a turn in which the model gives these answers, those of the journal included."""
        ...

    def call_id(self, step: int, at: int) -> str:
        """Return the id of the call at a place."""
        ...


class ScriptedStage:
    """The scripted engine."""

    begins_in_s = 0.3
    at_once = 40

    def __init__(self) -> None:
        self.engine: Engine = ScriptedEngine(environment="development")

    def options(self, answers: Sequence[Answer], **given: Any) -> EngineOptions:
        script = [item for answer in answers for item in self._items(answer)]
        return EngineOptions(engine_config={"script": script}, run_id="r", **given)

    def call_id(self, step: int, at: int) -> str:
        return f"toolu_r_{step}_{at}"

    def _items(self, answer: Answer) -> list[Json]:
        items: list[Json] = [{"think": answer.think or None, "sleep_s": answer.wait_s, "say": answer.text or None}]
        if answer.stalls:
            items.append({"sleep_s": 60})
        if answer.fails:
            items.append({"error": {"kind": "model_error", "message": "Overloaded", "retryable": True}})
        if answer.calls:
            items.append({"tool": [{"name": call.name, "input": call.input} for call in answer.calls]})
        return items


class WireStage:
    """An engine that speaks over HTTP to a local model server."""

    begins_in_s = 0.3
    at_once = 40
    model = "sonnet"

    def __init__(self, server: ModelServer, engine: Engine) -> None:
        self.overloaded: Json = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
        self.server = server
        self.engine = engine

    def options(self, answers: Sequence[Answer], **given: Any) -> EngineOptions:
        steps = len(given.get("journal", ()))
        self.server.reply(*(self.reply(step, answer) for step, answer in enumerate(answers) if step >= steps))
        return EngineOptions(model=self.model, **given)

    def call_id(self, step: int, at: int) -> str:
        return f"toolu_{step}_{at}"

    def tool_name(self, name: str) -> str:
        """Return the name by which the model calls a tool."""
        return name

    def reply(self, step: int, answer: Answer) -> Stream | Status:
        """Return an answer as it goes over the wire."""
        parts: list[Part] = []
        if answer.think:
            parts.append(Part("thinking", [answer.think]))
        if answer.wait_s:
            parts.append(Part("sleep", answer.wait_s))
        if answer.text:
            words = answer.text.split(" ")
            parts.append(Part("text", [f"{word} " for word in words[:-1]] + words[-1:]))
        if answer.stalls:
            parts.append(Part("stall"))
        if answer.fails:
            parts.append(Part("event", ("error", self.overloaded)))
        parts += [
            Part("tool", (self.call_id(step, at), self.tool_name(call.name), call.input))
            for at, call in enumerate(answer.calls)
        ]
        return Stream(tuple(parts))


class AnthropicStage(WireStage):
    """The anthropic engine."""

    def __init__(self, server: ModelServer) -> None:
        super().__init__(server, AnthropicEngine(api_key="k", base_url=server.url, max_retries=0))


class OpenAIStage(WireStage):
    """The openai engine."""

    model = "local/some-model"

    def __init__(self, server: ModelServer, api: WireForm) -> None:
        provider = OpenAIProvider("local", f"{server.url}/v1", api)
        super().__init__(server, OpenAIEngine(Catalog([provider]), max_retries=0))
        if api == "responses":
            self.overloaded = {"code": "server_is_overloaded", "message": "Overloaded", "sequence_number": 9}


class Bench:
    """Tools for the model to call, and a record of the calls."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        self.canceled = asyncio.Event()
        self._meeting = asyncio.Barrier(2)
        self._tools: dict[str, tuple[bool, Callable[[Json], Awaitable[CallToolResult]]]] = {
            "add": (True, self._add),
            "count": (False, self._count),
            "break": (False, self._break),
            "raise": (False, self._raise),
            "hang": (False, self._hang),
            "meet": (False, self._meet),
        }

    def servers(self) -> dict[str, InProcessMcpServer]:
        """Return them in the form of the options."""

        async def list_tools(_: Any, __: Any) -> ListToolsResult:
            return ListToolsResult(
                tools=[
                    Tool(
                        name=name,
                        description=f"Does {name}.",
                        input_schema={"type": "object"},
                        annotations=ToolAnnotations(idempotent_hint=idempotent),
                    )
                    for name, (idempotent, _) in self._tools.items()
                ]
            )

        async def call_tool(_: Any, params: Any) -> CallToolResult:
            self.runs.append(params.name)
            return await self._tools[params.name][1](params.arguments or {})

        return {"bench": InProcessMcpServer(Server("bench", on_list_tools=list_tools, on_call_tool=call_tool))}

    async def _add(self, given: Json) -> CallToolResult:
        return _said(str(given["a"] + given["b"]))

    async def _count(self, _: Json) -> CallToolResult:
        return _said(f"run {self.runs.count('count')}")

    async def _break(self, _: Json) -> CallToolResult:
        return CallToolResult(content=[TextContent(text="it broke")], is_error=True)

    async def _raise(self, _: Json) -> CallToolResult:
        raise ZeroDivisionError("a bug")

    async def _hang(self, _: Json) -> CallToolResult:
        self.began.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.canceled.set()
            raise
        return _said("released")

    async def _meet(self, _: Json) -> CallToolResult:
        await self._meeting.wait()
        return _said("met")


class TurnRecorder:
    """Callbacks that record all that an engine reports."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.records: list[StepRecord] = []
        self.before_tools: list[StepRecord] = []
        self.results: list[ToolCall] = []
        self.tokens: list[str] = []
        self.steering: list[tuple[Message, ...]] = []
        self.verdicts: list[StepVerdict] = []
        self.refuse: dict[str, str] = {}

    def callbacks(self, **others: Any) -> EngineCallbacks:
        """Return the callbacks; `others` replace some."""
        ours: dict[str, Any] = {
            "on_thinking": self._thinking,
            "on_assistant_message": self._narration,
            "on_tool_use": self._tool_use,
            "on_tool_use_summary": self._summary,
            "on_event": self._event,
            "on_token": self._token,
            "on_reasoning": self._reasoning,
            "on_tool_result": self._tool_result,
            "on_tool_calls": self._tool_calls,
            "on_step": self._step,
            "take_steering": self._take_steering,
            "authorize_tool": self._authorize,
        }
        return EngineCallbacks(**{**ours, **others})

    def _thinking(self) -> None:
        self.log.append("thinking")

    def _narration(self, text: str) -> None:
        self.log.append(("narration", text))

    def _tool_use(self, call: ToolCall, _: str) -> None:
        self.log.append(("tool", call.tool_name))

    def _summary(self, _: str) -> None:
        self.log.append("summary")

    def _event(self, event: EngineEvent) -> None:
        self.log.append(("event", event.type))

    def _reasoning(self, text: str) -> None:
        self.log.append(("reasoning", text))

    def _token(self, text: str) -> None:
        self.tokens.append(text)
        if self.log[-1:] != ["tokens"]:
            self.log.append("tokens")

    async def _tool_result(self, call: ToolCall, _: str) -> None:
        self.results.append(call)
        self.log.append(("result", call.tool_name, call.status))

    async def _tool_calls(self, record: StepRecord) -> None:
        self.before_tools.append(record)
        self.log.append("calls")

    async def _step(self, record: StepRecord) -> StepVerdict:
        self.records.append(record)
        self.log.append(("step", record.index, record.final))
        return self.verdicts.pop(0) if self.verdicts else "continue"

    async def _take_steering(self) -> tuple[Message, ...]:
        self.log.append("steering")
        return self.steering.pop(0) if self.steering else ()

    async def _authorize(self, name: str, _: Json) -> ToolAuthorization:
        self.log.append(("authorize", name))
        return ToolAuthorization(name not in self.refuse, self.refuse.get(name))


def assert_valid(messages: Sequence[Message]) -> None:
    """Assert that a model would accept the transcript: each call has one result right after, no text is empty."""
    for position, message in enumerate(messages):
        calls = [block["id"] for block in message.content if block["type"] == "tool_use"]
        following = messages[position + 1].content if position + 1 < len(messages) else ()
        answered = [block["tool_use_id"] for block in following if block["type"] == "tool_result"]
        assert calls == answered, f"calls {calls} are followed by results {answered}"
        assert all(block["text"].strip() for block in message.content if block["type"] == "text")
        assert message.content


def _said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])
