"""Plays an agent of Pydantic AI as a part of a durable agent."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition, ToolDenied

from nova_workers.contracts.content import text_of
from nova_workers.contracts.native import CODE_STEP, CODE_STEP_ONCE
from nova_workers.contracts.user_agents import Operation, SpokenMessage
from nova_workers.sdk.adapters.pydantic_ai.models import RecordedModel
from nova_workers.sdk.adapters.pydantic_ai.outcomes import outcome_of, result_in
from nova_workers.sdk.adapters.pydantic_ai.together import Together
from nova_workers.sdk.declaration import ToolOptions
from nova_workers.sdk.durable import Context, StepFailed, StepFunction, Wanted, step_value

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

_APPROVE: Final = "approve"
_DENY: Final = "deny"
_STEP_TIMEOUT_S: Final = 3_600.0


async def run_agent(
    ctx: Context,
    agent: Agent[DepsT, OutputT],
    prompt: str | Sequence[UserContent],
    *,
    deps: DepsT = None,
    once: Collection[str] = (),
    inline: Collection[str] = (),
    stream: bool = True,
    message_history: Sequence[ModelMessage] | None = None,
    **options: Any,
) -> AgentRunResult[OutputT]:
    """Run an agent to its end, and return its result.

    Its model requests and tool calls are steps of the run's journal: a later attempt executes the agent again, and gets
    what has ended from there, without asking or calling. Text of models is emitted as it comes, and what they used is
    counted. A tool that needs an approval waits for a person, and so does one that defers with the kind ``question``;
    the run takes no worker meanwhile. Both need the capability ``user``.

    Args:
        ctx: Of the agent in Python.
        agent: What decides which requests and calls follow must be the same when it is executed again.
        prompt: The message to it.
        deps: Its dependencies.
        once: Tools that must not be called twice. If the process ends during a call, the model gets to know that its
            outcome is not known; others are called again.
        inline: Tools that use operations of `ctx`. They are no steps themselves, and are called again by each attempt.
        stream: Whether text of models is emitted.
        message_history: The conversation before; None is that of the thread, as people have it.
        options: Further arguments of `Agent.run`.

    Raises:
        StepFailed: A tool raised an error that is none of the library's.
    """
    together = Together(ctx.journal)
    durability: _Durability[DepsT] = _Durability(ctx, together, frozenset(once), frozenset(inline), stream)
    capabilities = [*(options.pop("capabilities", None) or ()), durability]
    history = _messages_of(await ctx.history()) if message_history is None else message_history
    try:
        return await agent.run(prompt, deps=deps, message_history=history, capabilities=capabilities, **options)
    finally:
        await together.close()


@dataclass
class _Durability(AbstractCapability[DepsT]):
    nova: Context
    together: Together
    once: frozenset[str]
    inline: frozenset[str]
    stream: bool

    def get_wrapper_model(self, model: Model) -> Model:
        return RecordedModel(model, self.nova.journal, self.together, self.nova.emit if self.stream else None)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[DepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        name = call.tool_name
        if name in self.inline:
            return await handler(args)
        # A step is executed in a task of its own; the library keeps what it knows of a run in context variables.
        context = contextvars.copy_context()

        async def execute() -> Any:
            return await asyncio.get_running_loop().create_task(outcome_of(handler(args)), context=context)

        function = StepFunction(f"The step {name!r}", execute, True, ToolOptions(timeout_s=_STEP_TIMEOUT_S))
        kind = CODE_STEP_ONCE if name in self.once else CODE_STEP
        # The arguments are for people: only the name is compared.
        operation = Operation(name=kind, input={"name": name, "input": call.args_as_dict()})
        try:
            outcome = await self.together.execute(Wanted(self.nova.journal, operation, step_value, function))
        except StepFailed as error:
            if name not in self.once:
                raise
            outcome = {"failed": str(error)}
        return result_in(outcome)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[DepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        questions = [each for each in requests.calls if requests.kind(each.tool_call_id) == "question"]
        if not requests.approvals and not questions:
            return None
        answers = await self.nova.gather(
            *(
                self.nova.ask_user(f"May {each.tool_name} be called with {_shown(each)}?", options=[_APPROVE, _DENY])
                for each in requests.approvals
            ),
            *(self.nova.ask_user(_question(each, requests)) for each in questions),
        )
        decided, said = answers[: len(requests.approvals)], answers[len(requests.approvals) :]
        return requests.build_results(
            approvals={
                each.tool_call_id: answer.strip().lower() == _APPROVE or ToolDenied(f"A person denied it: {answer}")
                for each, answer in zip(requests.approvals, decided, strict=True)
            },
            calls={each.tool_call_id: answer for each, answer in zip(questions, said, strict=True)},
        )


def _shown(call: ToolCallPart) -> str:
    return json.dumps(call.args_as_dict(), ensure_ascii=False, default=str)


def _question(call: ToolCallPart, requests: DeferredToolRequests) -> str:
    metadata = requests.metadata.get(call.tool_call_id, {})
    asked = metadata.get("question") or call.args_as_dict().get("question")
    return asked if isinstance(asked, str) and asked else f"{call.tool_name} asks about {_shown(call)}"


def _messages_of(conversation: Sequence[SpokenMessage]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for each in conversation:
        text = text_of(each.content)
        if not text:
            continue
        if each.role == "user":
            messages.append(ModelRequest(parts=[UserPromptPart(text)]))
        else:
            messages.append(ModelResponse(parts=[TextPart(text)]))
    return messages
