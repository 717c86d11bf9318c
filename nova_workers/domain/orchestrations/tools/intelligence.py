"""The tool that recommends a model for a piece of work."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nova_workers.base.vocabulary import Complexity
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.models.choice import Recommendation
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.tools.seam import Declarations, Text, caller_of


class _Recommend(ToolInput):
    task_description: Text
    complexity: Annotated[
        Complexity | None, Field(description="How hard the task is. Leave it out for what is usual for such a task.")
    ] = None


class _Intelligence:
    def __init__(self, views: AgentViews) -> None:
        self._views = views

    async def recommend(self, context: CapabilityContext, given: _Recommend) -> str:
        found = await self._views.recommend_model(caller_of(context), given.task_description, given.complexity)
        return _describe(found)


def intelligence_tools(views: AgentViews) -> Declarations:
    """Return the tools."""
    return (
        ToolDeclaration(
            "recommend_model",
            "Get the model that fits a task, for the parameter `model` of spawn_child.",
            _Recommend,
            _Intelligence(views).recommend,
            idempotent=True,
            read_only=True,
        ),
    )


def _describe(found: Recommendation) -> str:
    words = f" (its words: {', '.join(found.words)})" if found.words else ""
    others = ", ".join(model.model_id for model in found.alternatives) or "none"
    return (
        f"{found.model.model_id} of {found.model.provider}, tier {found.model.tier}.\n"
        f"Kind of work: {found.category}{words}; it needs the tier {found.tier} or above. Score {found.score:g}.\n"
        f"Alternatives: {others}."
    )
