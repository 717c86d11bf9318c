"""Tools that ask other models and configured experts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nova_workers.capabilities.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.orchestration.actions import AgentActions
from nova_workers.orchestration.tools.seam import Declarations, Text, await_spawned, caller_of

__all__ = ["expert_tools"]


class _ConsultExpert(ToolInput):
    expert_id: Annotated[str, Field(min_length=1, max_length=64)]
    question: Text


class _Experts:
    def __init__(self, actions: AgentActions) -> None:
        self._actions = actions

    async def consult_expert(self, context: CapabilityContext, given: _ConsultExpert) -> AwaitMessages:
        request = SpawnRequest(given.question, role="EXPERT", expert_id=given.expert_id)
        return await_spawned(await self._actions.spawn(caller_of(context), [request]), "expert")


def expert_tools(actions: AgentActions) -> Declarations:
    """Return the tools."""
    tools = _Experts(actions)
    return (
        ToolDeclaration(
            "consult_expert",
            "Ask a configured expert, and wait for the answer.",
            _ConsultExpert,
            tools.consult_expert,
            idempotent=True,
        ),
    )
