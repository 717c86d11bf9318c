"""Runs a script's responses and its tools."""

import asyncio
import os
import re

import orjson

from nova_workers.base.errors import EngineFailure, ToolFailure
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block, text_of
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.steps import ModelRequest
from nova_workers.contracts.usage import Allowance, CallBound, TokenPrice, TokenUsage
from nova_workers.engines.asking import described
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.scripted.script import ScriptedResponse, ScriptedTool, ScriptItem
from nova_workers.engines.turn import Ask, Draft, Response, ToolOutcome, model_span

MODEL = "scripted"
EXIT_CODE = 137
"""Exit code of a process killed with SIGKILL."""

_TOKENS = re.compile(r"\s*\S+|\s+$")
_YIELD_EVERY_TOKENS = 256
"""A long text without a rate yields to the event loop this often (about every 0.2 ms)."""
_SHORTEST_WAIT_S = 0.002
"""Tokens due within this time are sent together: a timer costs more than a token."""


class Echo:
    """A model without a script: it repeats the message."""

    def __init__(self, system: str = "") -> None:
        self._system = system

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Answer the last message."""
        with model_span(MODEL, MODEL, ask, draft) as call:
            draft.request(ModelRequest(ask.step, self._system, (), {"model": MODEL}))
            text = f"{_steered(ask)}You said: {_last_user_text(ask)}"
            await _stream_text(draft, text, 0.0)
            call.attempts = 1
            call.response = Response((text_block(text),), "end", _usage(ask, draft), MODEL)
            return call.response


class Player:
    """A model that follows a script."""

    def __init__(
        self,
        responses: tuple[ScriptedResponse, ...],
        call_prefix: str,
        allowance: Allowance | None,
        *,
        system: str,
        toolbox: Toolbox | None,
    ) -> None:
        self._responses = responses
        self._call_prefix = call_prefix
        self._allowance = allowance
        self._system = system
        self._toolbox = toolbox
        self._offered: tuple[JsonObject, ...] | None = None

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Return the response for this step; after the script's end, a closing message."""
        with model_span(MODEL, MODEL, ask, draft) as call:
            call.attempts = 1
            call.response = await self._answer(ask, draft)
            return call.response

    async def _answer(self, ask: Ask, draft: Draft) -> Response:
        draft.model = MODEL
        if self._offered is None:
            tools = {} if self._toolbox is None else await self._toolbox.connect()
            self._offered = described(tools.values())
        draft.request(ModelRequest(ask.step, self._system, self._offered, {"model": MODEL}))
        items = self._items(ask)
        used = next((item.usage.value() for item in reversed(items) if item.usage), None)
        if used is None or self._allowance is None:
            return await self._respond(ask, draft, items, used)
        reservation = await self._allowance.reserve(_bound(used))
        try:
            return await self._respond(ask, draft, items, used)
        finally:
            reservation.drop(used)

    def _items(self, ask: Ask) -> ScriptedResponse:
        return self._responses[ask.step] if ask.step < len(self._responses) else (ScriptItem(say="Done."),)

    async def _respond(self, ask: Ask, draft: Draft, items: ScriptedResponse, used: TokenUsage | None) -> Response:
        steered = _steered(ask)
        if steered:
            await _stream_text(draft, steered, 0.0)
        thoughts: list[str] = []
        for item in items:
            await self._play(item, draft, thoughts)
        blocks: list[ContentBlock] = []
        if thoughts:
            blocks.append({"type": "thinking", "thinking": "".join(thoughts), "signature": MODEL})
        if draft.text.strip():
            blocks.append(text_block(draft.text))
        tools = items[-1].tools
        blocks += [
            {
                "type": "tool_use",
                "id": call_id(self._call_prefix, ask.step, at) if tool.id is None else tool.id,
                "name": tool.name,
                "input": tool.input,
            }
            for at, tool in enumerate(tools)
        ]
        return Response(tuple(blocks), "tools" if tools else "end", used or _usage(ask, draft), MODEL)

    async def _play(self, item: ScriptItem, draft: Draft, thoughts: list[str]) -> None:
        if item.think:
            thoughts.append(item.think)
            draft.reasoning(item.think)
        if item.sleep_s:
            await asyncio.sleep(item.sleep_s)
        if item.say:
            await _stream_text(draft, item.say, item.token_delay_s)
        if item.error is not None:
            raise EngineFailure(item.error.message, kind=item.error.kind, retryable=item.error.retryable)
        if item.crash == "exit":
            os._exit(EXIT_CODE)
        if item.crash == "raise":
            raise RuntimeError("The script crashed this engine")


class PlayerTools:
    """The tools of a script: tools of an MCP server are called, all others are simulated."""

    def __init__(self, responses: tuple[ScriptedResponse, ...], toolbox: Toolbox | None) -> None:
        self._responses = responses
        self._toolbox = toolbox

    async def is_idempotent(self, name: str) -> bool:
        """Return the declaration of the tool's server, or of the script."""
        if await self._has(name) and self._toolbox is not None:
            return await self._toolbox.is_idempotent(name)
        return any(tool.name == name and tool.idempotent for items in self._responses for tool in items[-1].tools)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call."""
        tool = self._tool(call)
        if tool is not None and tool.sleep_s:
            await asyncio.sleep(tool.sleep_s)
        if await self._has(call.tool_name) and self._toolbox is not None:
            return await self._toolbox.call(call)
        if tool is None:
            raise ToolFailure(f"There is no tool {call.tool_name!r} in the script.", tool=call.tool_name)
        if tool.fail:
            raise ToolFailure(tool.fail if isinstance(tool.fail, str) else f"{tool.name} failed", tool=tool.name)
        result = tool.result if isinstance(tool.result, str) else orjson.dumps(tool.result).decode()
        return ToolOutcome((text_block(result),) if result else ())

    async def _has(self, name: str) -> bool:
        return self._toolbox is not None and name in await self._toolbox.connect()

    def _tool(self, call: ToolCall) -> ScriptedTool | None:
        if call.step >= len(self._responses):
            return None
        tools = self._responses[call.step][-1].tools
        place = call.sequence - sum(len(items[-1].tools) for items in self._responses[: call.step])
        return tools[place] if 0 <= place < len(tools) else None


def call_id(prefix: str, step: int, at: int) -> str:
    """Return the id of a call, the same in every attempt."""
    return f"toolu_{prefix}_{step}_{at}"


async def _stream_text(draft: Draft, text: str, delay_s: float) -> None:
    tokens: list[str] = _TOKENS.findall(text)
    if not delay_s:
        for count, token in enumerate(tokens, 1):
            draft.token(token)
            if count % _YIELD_EVERY_TOKENS == 0:
                await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for count, token in enumerate(tokens, 1):
        wait_s = started_s + count * delay_s - loop.time()
        if wait_s > _SHORTEST_WAIT_S:
            await asyncio.sleep(wait_s)
        draft.token(token)


def _steered(ask: Ask) -> str:
    if not ask.steering:
        return ""
    return "".join(f"(steered: {text_of(message.content)}) " for message in ask.steering)


def _last_user_text(ask: Ask) -> str:
    latest: Message | None = next((message for message in reversed(ask.messages) if message.role == "user"), None)
    return "" if latest is None else text_of(latest.content)


def _usage(ask: Ask, draft: Draft) -> TokenUsage:
    """Estimate four characters per token, the average of English."""
    return TokenUsage(input_tokens=len(_last_user_text(ask)) // 4 + 1, output_tokens=len(draft.text) // 4 + 1)


def _bound(used: TokenUsage) -> CallBound:
    """Return the bound of a response whose script states its usage: the same."""
    usd_per_token = None if used.cost_usd is None else used.cost_usd / max(used.total_tokens, 1)
    price = None if usd_per_token is None else TokenPrice(usd_per_token, usd_per_token)
    return CallBound(MODEL, used.total_tokens - used.output_tokens, used.output_tokens, used.output_tokens, price)
