"""The turn's communication with one run of the program."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    HookContext,
    HookMatcher,
    McpSdkServerConfig,
    query,
)
from claude_agent_sdk.types import HookEvent, HookInput, SyncHookJSONOutput
from mcp.server import Server

from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.steps import not_permitted
from nova_workers.engines.claude_agent.failures import is_media_refusal
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.names import BRIDGE, own_name
from nova_workers.engines.claude_agent.process import ClaudeProcess
from nova_workers.engines.claude_agent.subagents import Subagents
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.turn import ToolOutcome

_log = structlog.get_logger(__name__)

_HOOK_TIMEOUT_S = 7 * 86_400.0
"""A hook waits for a commit, which waits while the database is unavailable. The turn has its own limits."""
_CLOSING_S = 10.0
_BATCH_EVENT = cast("HookEvent", "PostToolBatch")
"""The program sends this event and the SDK forwards it, but it is missing in the SDK's type (0.2.187)."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The program has every result of a step, and waits to ask the model again."""

    passed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Ended:
    """The program has exited."""

    complaints: str


Frame = JsonObject | Boundary | Ended
"""A message of the main conversation as the program wrote it, or one of the two classes above."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a conversation needs besides its launch."""

    bridge: Server[Any]
    gate: CallGate
    subagents: Subagents
    agents: Mapping[str, AgentDefinition]
    skills: Sequence[str]


class Conversation:
    """Starts the program, dispatches its messages, and sends it those of the turn. Must be closed."""

    def __init__(self, launch: Launch, parts: Parts) -> None:
        self.mirrored: list[JsonObject] = []
        """Entries that the program added to its session's file."""
        self.idle = False
        """Whether the program has given its result and waits for a message."""
        self._parts = parts
        self._begun = False
        self._process = ClaudeProcess(launch, self._sort)
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._to_say: asyncio.Queue[tuple[tuple[ContentBlock, ...], asyncio.Event]] = asyncio.Queue()
        self._driver = asyncio.create_task(self._drive(), name="claude-agent")

    async def next(self) -> Frame:
        """Wait for the next frame."""
        frame = await self._frames.get()
        if isinstance(frame, dict) and frame.get("type") == "result":
            self.idle = True
        return frame

    def put_back(self, frame: Frame) -> None:
        """Put a frame back at the front of the queue."""
        rest: list[Frame] = [frame]
        while not self._frames.empty():
            rest.append(self._frames.get_nowait())
        for item in rest:
            self._frames.put_nowait(item)

    async def say(self, content: tuple[ContentBlock, ...]) -> None:
        """Send a user message. Returns when it is written."""
        written = asyncio.Event()
        self.idle = False
        self._to_say.put_nowait((content, written))
        waiting = asyncio.create_task(written.wait())
        try:
            # A program that has ended reads no message; its frames report the end.
            await asyncio.wait((waiting, self._driver), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def freeze(self) -> None:
        """Suspend the program. Returns at once."""
        self._process.freeze()

    async def close(self) -> None:
        """End the program and all its descendants."""
        # End the program first, since the SDK would wait for it to exit. The SDK then notices and cleans up, which a
        # cancellation would interrupt.
        await self._process.close()
        if not self._begun:
            # It still waits for the program's first message, with a timeout of a minute.
            self._driver.cancel()
        _, late = await asyncio.wait((self._driver,), timeout=_CLOSING_S)
        if late:
            self._driver.cancel()
            await asyncio.wait(late)

    async def _drive(self) -> None:
        complaint = ""
        try:
            async for _ in query(prompt=self._messages(), options=self._options(), transport=self._process):
                # `_sort` has processed the messages already; the SDK answers control requests here.
                pass
        except Exception as error:
            # The SDK raises if the program exits or violates the protocol; the turn gets `Ended`.
            complaint = f"{type(error).__name__}: {error}"
            _log.debug("claude_program_failed", error=complaint, complaints=self._process.complaints)
        finally:
            self._frames.put_nowait(Ended(self._process.complaints or complaint))

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            content, written = await self._to_say.get()
            message = {"role": "user", "content": list(content)}
            yield {"type": "user", "session_id": "", "message": message, "parent_tool_use_id": None}
            # The SDK resumes the generator once the message is written.
            written.set()

    def _options(self) -> ClaudeAgentOptions:
        server = McpSdkServerConfig(type="sdk", name=BRIDGE, instance=self._parts.bridge)
        before = HookMatcher(hooks=[self._before_call], timeout=_HOOK_TIMEOUT_S, on_failure="block")
        after = HookMatcher(hooks=[self._after_calls], timeout=_HOOK_TIMEOUT_S)
        return ClaudeAgentOptions(
            mcp_servers={BRIDGE: server},
            hooks={"PreToolUse": [before], _BATCH_EVENT: [after]},
            agents=dict(self._parts.agents) or None,
            skills=list(self._parts.skills),
            forward_subagent_text=True,
            # Do not scan user messages for file names to attach or commands to run.
            verbatim_prompts=True,
        )

    async def _before_call(self, given: HookInput, call_id: str | None, _: HookContext) -> SyncHookJSONOutput:
        """Hold a call until the turn admits it. The program's own permission rules still apply after that."""
        about = cast("JsonObject", given)
        if about.get("agent_id"):
            self._parts.gate.pass_by(str(call_id))
            verdict = await self._parts.subagents.authorize(own_name(about["tool_name"]), about["tool_input"])
            refusal = None if verdict.allowed else not_permitted(verdict.reason)
        else:
            refusal = await self._parts.gate.verdict(str(call_id))
            if refusal is None and about["tool_name"] == "Agent":
                self._parts.subagents.begin(str(call_id), about["tool_input"])
        if refusal is None:
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": refusal,
            }
        }

    async def _after_calls(self, given: HookInput, _: str | None, __: HookContext) -> SyncHookJSONOutput:
        """Hold the program between a step and its next model call."""
        if not cast("JsonObject", given).get("agent_id"):
            boundary = Boundary()
            self._frames.put_nowait(boundary)
            await boundary.passed.wait()
        return {}

    def _sort(self, message: JsonObject) -> None:
        self._begun = True
        kind = message.get("type")
        parent = message.get("parent_tool_use_id")
        if kind == "transcript_mirror":
            # Transcripts of subagents are in a directory below the session's.
            if "/subagents/" not in str(message.get("filePath")):
                self.mirrored += message.get("entries") or []
        elif parent is not None:
            self._parts.subagents.show(str(parent), message)
        elif kind == "user":
            self._settle(message)
        elif kind in ("stream_event", "result", "system") or is_media_refusal(message):
            self._frames.put_nowait(message)

    def _settle(self, message: JsonObject) -> None:
        content: Any = message.get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                result: Any = block.get("content") or ()
                blocks = (text_block(result),) if isinstance(result, str) else tuple(result)
                self._parts.gate.settle(block["tool_use_id"], ToolOutcome(blocks, failed=block.get("is_error") is True))
