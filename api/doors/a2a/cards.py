"""Cards: what clients read of an agent before they talk to it."""

from __future__ import annotations

from typing import Final

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from starlette.requests import Request

from nova_workers.base.media import MEDIA_TYPES
from nova_workers.base.release import release
from nova_workers.contracts.http.wire import AgentView

from ...state import state_of

VERSION: Final = "1.0"
PREFIX: Final = "/a2a"
CARD_PATH: Final = "/.well-known/agent-card.json"

FLEETS_AGENT: Final = "nova"
"""The agent behind the card of the fleet: the one that every tenant begins with."""

_INPUTS: Final = ("text/plain", "application/json", *MEDIA_TYPES)
_OUTPUTS: Final = ("text/plain", "application/json")
_SCHEME: Final = "key"
_TAGS: Final = ("agent",)


def fleets_card(request: Request) -> AgentCard:
    """Return the card that needs no key. It has nothing of any tenant: an agent's card is given to those with a key."""
    return _card(
        request,
        FLEETS_AGENT,
        name="Nova Workers",
        description="A fleet of agents. With an API key, its extended card describes the agent behind this address.",
        card_version=release(),
    )


def card_of(request: Request, agent: AgentView) -> AgentCard:
    """Return the card of an agent."""
    name, about = agent.spec.name, agent.spec.description
    return _card(request, agent.id, name=name, description=about or name, card_version=str(agent.version))


def base_url(request: Request) -> str:
    """Return the beginning of the API's addresses, as its clients know it."""
    named = state_of(request).services.settings.api.public_url
    return (named or str(request.base_url)).rstrip("/")


def _card(request: Request, agent_id: str, *, name: str, description: str, card_version: str) -> AgentCard:
    url = f"{base_url(request)}{PREFIX}/{agent_id}"
    return AgentCard(
        name=name,
        description=description,
        version=card_version,
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=VERSION)
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        security_schemes={
            _SCHEME: SecurityScheme(
                http_auth_security_scheme=HTTPAuthSecurityScheme(
                    scheme="Bearer", description="An API key of the fleet, `nova_…`."
                )
            )
        },
        security_requirements=[SecurityRequirement(schemes={_SCHEME: StringList()})],
        default_input_modes=_INPUTS,
        default_output_modes=_OUTPUTS,
        skills=[AgentSkill(id=agent_id, name=name, description=description, tags=_TAGS)],
    )
