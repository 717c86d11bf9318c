"""Tools with which an agent observes its children."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nova_workers.base.vocabulary import ENDED_AGENTS, HistoryDetail
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.history import describe_history
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.tools.seam import ChildId, Declarations, caller_of


class _NoInput(ToolInput):
    pass


class _ChildStatus(ToolInput):
    child_id: ChildId


class _ChildHistory(ToolInput):
    child_id: ChildId
    detail_level: Annotated[
        HistoryDetail, Field(description="full: everything. summary: its texts, and which tools it called.")
    ] = "full"


class _Observing:
    def __init__(self, views: AgentViews) -> None:
        self._views = views

    async def child_history(self, context: CapabilityContext, given: _ChildHistory) -> str:
        child, entries = await self._views.child_history(caller_of(context), given.child_id)
        history = describe_history(entries, given.detail_level)
        return f"History of {child.id} ({child.state}), oldest first:\n\n{history}"

    async def check_child(self, context: CapabilityContext, given: _ChildStatus) -> str:
        return _describe(await self._views.child(caller_of(context), given.child_id))

    async def children_status(self, context: CapabilityContext, __: _NoInput) -> str:
        return "\n".join(map(_describe, await self._views.children(caller_of(context)))) or "You have no children."


def observing_tools(views: AgentViews) -> Declarations:
    """Return the tools."""
    tools = _Observing(views)
    return (
        ToolDeclaration(
            "get_child_history",
            "Read the conversation of a child: its texts, thoughts, tool calls and their results.",
            _ChildHistory,
            tools.child_history,
            idempotent=True,
            read_only=True,
        ),
        ToolDeclaration(
            "check_child_status",
            "See the state of one child.",
            _ChildStatus,
            tools.check_child,
            idempotent=True,
            read_only=True,
        ),
        ToolDeclaration(
            "get_children_status",
            "See the states of all your children.",
            _NoInput,
            tools.children_status,
            idempotent=True,
            read_only=True,
        ),
    )


def _describe(child: AgentDescriptor) -> str:
    parts = [f"{child.id} {child.name} ({child.role}): {child.state}"]
    if child.progress is not None:
        percent = child.progress.get("percent")
        share = "" if percent is None else f" ({percent:g} %)"
        parts.append(f"progress: {child.progress.get('status')}{share}")
    if child.model is not None:
        parts.append(f"model: {child.model}")
    if child.state in ENDED_AGENTS:
        result = child.summary or child.error_message
        if result:
            parts.append(f"result: {result}")
    return "; ".join(parts)
