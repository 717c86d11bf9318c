"""``/v1/capabilities``: the capabilities that agents can be granted."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from nova_workers.contracts.bodies import Page

from ...auth import AgentsReader
from ...openapi import problems
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1/capabilities", tags=["agents"])


class ToolView(BaseModel):
    """A tool that a capability offers."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    name: str
    description: str
    idempotent: bool
    """Whether a call with an unknown outcome is repeated after a crash."""
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
    """Whether it is never granted: runs of its kind always have it."""
    open_ended: bool
    """Whether its tools are those of the servers in the configuration, known once they answer."""


@router.get("", responses=problems(), dependencies=[CAPABILITIES])
async def list_capabilities(caller: AgentsReader, state: State) -> Page[CapabilityView]:
    """List every capability with its tools, by name, in one page."""
    del caller  # the same for every tenant
    return Page(items=[CapabilityView.model_validate(info) for info in state.services.capabilities.discover()])
