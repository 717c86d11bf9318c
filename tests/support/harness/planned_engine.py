"""An engine whose model and tools follow a plan in the message. The turn loop is the real one.

The plan is JSON: ``{"steps": [["search", "wait:door"], []], "id": "m1"}`` calls two tools, then ends the turn. The tool
name selects the behavior: ``wait:<name>`` blocks at a door until the test opens it; ``fail:…`` fails; ``again:…`` is
idempotent; ``ask:…`` waits for a person, ``agent:…`` for a run of another agent, ``odd:…`` for an unknown kind of wait;
``nul`` returns text that Postgres cannot store. ``"doors": {"0": "thinking"}`` blocks the model in the middle of
response 0 until the door opens. Any other text is answered at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from nova_workers.base.errors import EngineFailure, Outage, ToolFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block, text_of
from nova_workers.contracts.engine import EngineOptions, EngineResult, ToolCall, TrustLevel, TurnListener
from nova_workers.contracts.usage import Allowance, CallBound, TokenPrice, TokenUsage
from nova_workers.contracts.waits import AskAgent, AskUser
from nova_workers.domain.prompts.rules import is_event_block
from nova_workers.engines.turn import Ask, Draft, Interruption, Response, ToolOutcome, Turn

USAGE = TokenUsage(input_tokens=10, output_tokens=3, cost_usd=0.25)
"""The usage of each response."""
_BOUND = CallBound("planned-1", 10, 3, 3, TokenPrice(0.01, 0.05))
"""What a response uses at most: the same."""


class ModelCall(NamedTuple):
    """A call of the model: its run, its step, and the texts of the conversation without event contexts."""

    run_id: str
    step: int
    texts: tuple[str, ...]


class Execution(NamedTuple):
    """A tool execution that started."""

    run_id: str
    call_id: str
    tool: str


def plan(*steps: list[str], doors: dict[int, str] | None = None, id: str = "m") -> str:
    """Return a message that makes the model call these tools, one list per step, and then end the turn."""
    return orjson.dumps(
        {"steps": steps, "doors": {str(at): door for at, door in (doors or {}).items()}, "id": id}
    ).decode()


class PlannedEngine:
    """The engine. All workers of a test may share one object.

    Attributes:
        model_calls: Every call of the model, in order.
        executions: Every tool execution that started, in order.
    """

    name = "planned"

    def __init__(self) -> None:
        self.model_calls: list[ModelCall] = []
        self.executions: list[Execution] = []
        self.options: dict[str, EngineOptions] = {}
        """Of the latest turn of each run."""
        self.outage: Outage | None = None
        """While it is set, the model does not answer."""
        self._doors: dict[str, _Door] = {}

    def open(self, name: str) -> None:
        """Open a door: it no longer blocks."""
        self._door(name).opened.set()

    async def reached(self, name: str, timeout_s: float = 60.0) -> None:
        """Wait until a model or tool is blocked at a door."""
        async with asyncio.timeout(timeout_s):
            await self._door(name).reached.wait()

    def forget(self, name: str) -> None:
        """Close a door again."""
        self._doors.pop(name, None)

    async def pass_through(self, name: str) -> None:
        """Block at a door until it opens."""
        door = self._door(name)
        door.reached.set()
        await door.opened.wait()

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Run one turn."""
        content = (text_block(message),) if isinstance(message, str) else message
        self.options[options.run_id or ""] = options
        script = _read(text_of(content))
        tools = _Tools(self, options.run_id or "")
        with Interruption(abort, options.timeout_s) as interruption:
            turn = Turn(
                _Model(self, script, options.run_id or "", options.allowance),
                tools,
                options,
                callbacks or TurnListener(),
                interruption,
            )
            return await turn.play(content, provider=self.name)

    async def close(self) -> None:
        """Release nothing."""

    def _door(self, name: str) -> _Door:
        return self._doors.setdefault(name, _Door(asyncio.Event(), asyncio.Event()))


@dataclass(slots=True)
class _Door:
    reached: asyncio.Event
    opened: asyncio.Event


def _read(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        return orjson.loads(text)
    return {"steps": [], "doors": {}}


class _Model:
    def __init__(self, engine: PlannedEngine, script: dict[str, Any], run_id: str, allowance: Allowance | None) -> None:
        self._engine = engine
        self._allowance = allowance
        self._steps: list[list[str]] = script["steps"]
        self._doors: dict[str, str] = script["doors"]
        self._run_id = run_id

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        if self._allowance is None:
            return await self._answer(ask, draft)
        reservation = await self._allowance.reserve(_BOUND)
        try:
            response = await self._answer(ask, draft)
            await reservation.settle(response.usage)
            return response
        finally:
            reservation.drop(TokenUsage())

    async def _answer(self, ask: Ask, draft: Draft) -> Response:
        self._engine.model_calls.append(
            ModelCall(self._run_id, ask.step, tuple(_words(message) for message in ask.messages))
        )
        if self._engine.outage is not None:
            raise EngineFailure(
                "The provider refuses.", kind="auth_failure", retryable=False, outage=self._engine.outage
            )
        draft.token(f"Step {ask.step}. ")
        door = self._doors.get(str(ask.step))
        if door is not None:
            await self._engine.pass_through(door)
        tools = self._steps[ask.step] if ask.step < len(self._steps) else []
        if not tools:
            draft.token("Done.")
        blocks: list[ContentBlock] = [text_block(draft.text)]
        blocks += [
            {"type": "tool_use", "id": f"toolu_{self._run_id}_{ask.step}_{at}", "name": tool, "input": {"at": at}}
            for at, tool in enumerate(tools)
        ]
        return Response(tuple(blocks), "tools" if tools else "end", USAGE, "planned-1")


class _Tools:
    def __init__(self, engine: PlannedEngine, run_id: str) -> None:
        self._engine = engine
        self._run_id = run_id

    async def is_idempotent(self, name: str) -> bool:
        return name.startswith(("again:", "ask:", "agent:"))

    async def call(self, call: ToolCall) -> ToolOutcome:
        self._engine.executions.append(Execution(self._run_id, call.id, call.tool_name))
        kind, _, rest = call.tool_name.partition(":")
        if kind == "wait":
            await self._engine.pass_through(rest)
        if kind == "fail":
            raise ToolFailure(f"{call.tool_name} failed")
        if kind == "ask":
            return ToolOutcome((), deferral=AskUser(question=rest).model_dump(mode="json"))
        if kind == "agent":
            asked = AskAgent(agent_id="planned", message=plan(["asked"]))
            return ToolOutcome((), deferral=asked.model_dump(mode="json"))
        if kind == "odd":
            return ToolOutcome((), deferral={"kind": rest})
        if kind == "nul":
            return ToolOutcome((text_block("a\x00b and \ud83d"),))
        return ToolOutcome((text_block(f"result of {call.tool_name}"),))


def _words(message: Message) -> str:
    said = tuple(block for block in message.content if not is_event_block(block.get("text", "")))
    parts = [text_of(said)]
    for block in message.content:
        if block["type"] == "tool_use":
            parts.append(f"call {block['name']}")
        elif block["type"] == "tool_result":
            content = block.get("content", "")
            parts.append(content if isinstance(content, str) else text_of(tuple(content)))
    return " | ".join(part for part in parts if part)
