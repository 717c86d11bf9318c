# Generated from nova_workers/client/resources/agents.py by `make format`: change that file instead.
"""The client's calls of ``/v1/agents``."""

from nova_workers.client.headers import if_match
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.agents import (
    AgentPromptRequest,
    AgentPromptView,
    AgentRename,
    AgentRenameView,
    AgentRollback,
    AgentToolServersView,
)
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, AgentReplace, AgentView


class Agents:
    """``/v1/agents``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[AgentView]:
        """Return a page of agents."""
        return self._transport.fetch(Page[AgentView], "GET", "/v1/agents", params={"limit": limit, "cursor": cursor})

    def get(self, agent_id: str) -> AgentView:
        """Return an agent."""
        return self._transport.fetch(AgentView, "GET", f"/v1/agents/{agent_id}")

    def create(self, agent: AgentCreate) -> AgentView:
        """Create an agent; `Conflict` if its id is taken."""
        return self._transport.fetch(AgentView, "POST", "/v1/agents", body=agent)

    def replace(self, agent_id: str, agent: AgentReplace, *, if_version: int | None = None) -> AgentView:
        """Replace an agent's configuration; `VersionMismatch` if its newest version is not `if_version`."""
        return self._transport.fetch(
            AgentView, "PUT", f"/v1/agents/{agent_id}", body=agent, headers=if_match(if_version)
        )

    def patch(self, agent_id: str, change: AgentPatch, *, if_version: int | None = None) -> AgentView:
        """Change the fields that `change` sets; `VersionMismatch` if its newest version is not `if_version`."""
        return self._transport.fetch(
            AgentView, "PATCH", f"/v1/agents/{agent_id}", body=change, headers=if_match(if_version)
        )

    def rename(self, agent_id: str, to: str, *, if_version: int | None = None) -> AgentRenameView:
        """Give an agent another id, with all that it has. Repeating it returns the state.

        `Conflict` when the id is taken or runs of the agent are running.
        """
        return self._transport.fetch(
            AgentRenameView,
            "POST",
            f"/v1/agents/{agent_id}/rename",
            body=AgentRename(to=to),
            headers=if_match(if_version),
        )

    def prompt(self, agent_id: str, request: AgentPromptRequest | None = None) -> AgentPromptView:
        """Return the system prompt of an agent, or of the configuration in the request, with its size."""
        return self._transport.fetch(
            AgentPromptView, "POST", f"/v1/agents/{agent_id}/prompt", body=request or AgentPromptRequest()
        )

    def tool_servers(self, agent_id: str) -> AgentToolServersView:
        """Return the MCP servers that were away in the newest turn of an agent."""
        return self._transport.fetch(AgentToolServersView, "GET", f"/v1/agents/{agent_id}/tool-servers")

    def delete(self, agent_id: str) -> None:
        """Delete an agent."""
        self._transport.send("DELETE", f"/v1/agents/{agent_id}")

    def versions(self, agent_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[AgentView]:
        """Return a page of the versions of an agent, newest first."""
        return self._transport.fetch(
            Page[AgentView], "GET", f"/v1/agents/{agent_id}/versions", params={"limit": limit, "cursor": cursor}
        )

    def save_version(self, agent_id: str, change: AgentPatch) -> AgentView:
        """Save a version that is not current, for a rollout: the current one with the fields that `change` sets."""
        return self._transport.fetch(AgentView, "POST", f"/v1/agents/{agent_id}/versions", body=change)

    def version(self, agent_id: str, version: int) -> AgentView:
        """Return an earlier version of an agent."""
        return self._transport.fetch(AgentView, "GET", f"/v1/agents/{agent_id}/versions/{version}")

    def rollback(self, agent_id: str, version: int) -> AgentView:
        """Make an earlier version the newest again."""
        return self._transport.fetch(
            AgentView, "POST", f"/v1/agents/{agent_id}/rollback", body=AgentRollback(version=version)
        )
