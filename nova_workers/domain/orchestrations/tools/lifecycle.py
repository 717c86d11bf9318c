"""Tools with which an agent reports how far it is, and that it is done."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from nova_workers.contracts.orchestration import MAX_SUMMARY_CHARS, TASK_COMPLETE
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.tools.seam import Declarations, caller_of


class _Progress(ToolInput):
    status: Annotated[str, Field(min_length=1, max_length=2_000)]
    percent: Annotated[float | None, Field(ge=0, le=100)] = None


class _Complete(ToolInput):
    summary: Annotated[str, Field(max_length=MAX_SUMMARY_CHARS, description="What was done and found.")]
    artifacts: Annotated[dict[str, Any], Field(description="Results by name, such as paths of files.")] = Field(
        default_factory=dict[str, Any]
    )


class _Lifecycle:
    def __init__(self, actions: AgentActions) -> None:
        self._actions = actions

    async def report_progress(self, context: CapabilityContext, given: _Progress) -> str:
        await self._actions.report_progress(caller_of(context), given.status, given.percent)
        return "Reported."

    async def complete(self, context: CapabilityContext, given: _Complete) -> str:
        await self._actions.complete(caller_of(context), given.summary, given.artifacts)
        return "The task is complete."


def lifecycle_tools(actions: AgentActions) -> Declarations:
    """Return the tools."""
    tools = _Lifecycle(actions)
    return (
        ToolDeclaration(
            "report_progress",
            "Report how far you are. Does not wait.",
            _Progress,
            tools.report_progress,
            idempotent=True,
        ),
        ToolDeclaration(
            TASK_COMPLETE,
            "Declare your task complete, with a summary of the result. Your turn ends; children that still work are "
            "ended.",
            _Complete,
            tools.complete,
            idempotent=True,
        ),
    )
