"""``/v1/capabilities``: what agents can be granted."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from api.auth import AgentsCaller
from api.openapi import problems
from api.state import State
from nova_workers.contracts.bodies import Page

__all__ = ["router"]

router = APIRouter(prefix="/v1/capabilities", tags=["agents"])


class ToolView(BaseModel):
    """A tool that a capability offers."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    name: str
    description: str
    idempotent: bool
    """It may be run again after a crash that left its outcome unknown."""
    read_only: bool
    input_schema: dict[str, Any]


class CapabilityView(BaseModel):
    """A capability, its tools and the form of a grant's `config`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    name: str
    description: str
    tools: list[ToolView]
    config_schema: dict[str, Any]
    injected: bool
    """It is never granted: runs of its kind have it by themselves."""
    open_ended: bool
    """Its tools are those of the servers that the configuration names, and known when they answer."""


@router.get("", responses=problems())
async def list_capabilities(caller: AgentsCaller, state: State) -> Page[CapabilityView]:
    """List every capability with its tools, by name. There are few: one page holds all."""
    del caller  # the same for every tenant
    return Page(items=[CapabilityView.model_validate(info) for info in state.services.capabilities.discover()])
