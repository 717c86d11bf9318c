"""Tools by which agents talk: questions to the parent, answers and prompts to children, and the wait for messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nova_workers.contracts.waits import MAX_WAIT_S, AwaitMessages
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.tools.seam import ChildId, Declarations, Prompt, Text, caller_of


class _AskParent(ToolInput):
    question: Text


class _Respond(ToolInput):
    child_id: ChildId
    correlation_id: Annotated[
        str | None, Field(max_length=64, description="Of the question. Leave it out for the child's newest question.")
    ] = None
    response: Text


class _Wait(ToolInput):
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait at most; 0 waits for ever.")] = 0


class _PromptChild(ToolInput):
    child_id: ChildId
    prompt: Prompt


class _Conversation:
    def __init__(self, actions: AgentActions) -> None:
        self._actions = actions

    async def ask_parent(self, context: CapabilityContext, given: _AskParent) -> AwaitMessages:
        correlation_id, parent_id = await self._actions.ask_parent(caller_of(context), given.question)
        return AwaitMessages(sender="parent", correlation_ids=(correlation_id,), agent_ids=(parent_id,))

    async def respond(self, context: CapabilityContext, given: _Respond) -> str:
        child_id = await self._actions.respond(caller_of(context), given.child_id, given.correlation_id, given.response)
        return f"{child_id} has the answer and goes on."

    async def wait(self, context: CapabilityContext, given: _Wait) -> AwaitMessages:
        if not given.timeout:
            await self._actions.expect_message(caller_of(context))
        return AwaitMessages(sender="any", timeout_s=given.timeout or None)

    async def prompt_child(self, context: CapabilityContext, given: _PromptChild) -> str:
        child = await self._actions.prompt_child(caller_of(context), given.child_id, given.prompt)
        return f"{child.id} ({child.state}) has the message."


def conversation_tools(actions: AgentActions) -> Declarations:
    """Return the tools."""
    tools = _Conversation(actions)
    return (
        ToolDeclaration(
            "ask_parent",
            "Ask the agent that gave you your task, and wait for the answer.",
            _AskParent,
            tools.ask_parent,
            idempotent=True,
        ),
        ToolDeclaration(
            "respond_to_child",
            "Answer a question of a child. The child goes on with the answer.",
            _Respond,
            tools.respond,
            idempotent=True,
        ),
        ToolDeclaration(
            "wait_for_message",
            "Wait for the next message: a result or a question of a child, or a prompt.",
            _Wait,
            tools.wait,
            idempotent=True,
        ),
        ToolDeclaration(
            "send_child_prompt",
            "Send a message to a child that works. It gets it when it waits for messages, or at its end.",
            _PromptChild,
            tools.prompt_child,
            idempotent=True,
        ),
    )
