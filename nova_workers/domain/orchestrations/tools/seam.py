"""What the tools of all subjects share: fields of inputs, the calling agent, and how spawned agents are awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from nova_workers.base.vocabulary import AwaitedSender
from nova_workers.contracts.orchestration import MAX_PROMPT_CHARS
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration
from nova_workers.domain.orchestrations.rules.actions import Caller
from nova_workers.domain.orchestrations.rules.spawning.placing import Spawned

Prompt = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PROMPT_CHARS, description="The task, with everything that the child must know."),
]
ChildId = Annotated[str, Field(min_length=1, max_length=64, description="The child's id, or a unique part of it.")]
Text = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
Declarations = tuple[ToolDeclaration[Any], ...]

_HOW: Mapping[str, str] = {
    "spawned": "is a new child and works on it",
    "restarted": "was restarted and works on it",
    "prompted": "was idle and works on it",
}


def caller_of(context: CapabilityContext) -> Caller:
    """Return the agent that makes the call."""
    assert context.place is not None  # noqa: S101 - only agents of orchestrations have these tools
    return Caller(
        tenant_id=context.tenant_id,
        orchestration_id=context.place.orchestration_id,
        agent_id=context.place.agent_id,
        run_id=context.run_id,
        fence=context.fence,
        key=None if context.call_id is None else f"{context.turn_id} {context.call_id}",
        is_external=context.place.is_external,
    )


def await_spawned(spawned: Sequence[Spawned], sender: AwaitedSender) -> AwaitMessages:
    """Return the wait for the results of agents."""
    return AwaitMessages(
        sender=sender,
        correlation_ids=tuple(each.run_id for each in spawned),
        agent_ids=tuple(each.agent_id for each in spawned),
    )


def describe_spawned(spawned: Spawned) -> str:
    """Return the text about a child for an agent that does not wait for it."""
    where = "" if spawned.cwd is None else f", in {spawned.cwd}"
    return f"{spawned.agent_id} {_HOW[spawned.how]}{where}. Get its result with wait_for_message."
