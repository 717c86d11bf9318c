"""The `mcp` capability: tools of external servers, by configuration."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.config import ToolSettings
from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import PARTS, authored
from nova_workers.contracts.engine import McpServer, StdioMcpServer
from nova_workers.contracts.mcp.servers import MCP_CAPABILITY, McpServerForm, ServerName
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    Revealed,
    Servers,
)
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Connection


@authored(
    servers=PARTS,
)
class _Config(DescribedFields, TrueNumbers):
    """The servers, by names that the author chooses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: Annotated[dict[ServerName, McpServerForm], Field(min_length=1, max_length=20)]
    """By a name of your choice, which is part of its tools' names: ``mcp__<server>__<tool>``."""

    def references(self) -> set[str]:
        """Return the names of the secrets that they need."""
        return {name for server in self.servers.values() for name in server.references()}

    def includes(self, other: "_Config") -> bool:
        """Return whether each server of another one is among them, under the same name and with the same secrets."""
        return all(self.servers.get(name) == server for name, server in other.servers.items())


class _McpCapability:
    """Its tools are those of the servers, unknown before they answer."""

    name = MCP_CAPABILITY
    description = "Tools of MCP servers from outside: programs on the workers, or servers behind a URL."
    config: type[BaseModel] = _Config
    tools: tuple[Any, ...] | None = None
    injected = None

    def __init__(self, secrets: Secrets, settings: ToolSettings) -> None:
        self._secrets = secrets
        self._settings = settings

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Refuse servers that the operator does not permit."""
        for name, server in _servers(config).servers.items():
            server.check(self._settings, f"{field}.servers.{name}")

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that the servers get: a server may return one."""
        names = _servers(config).references()
        values = await self._secrets.readable(connection, tenant_id, names) if names else {}
        return Revealed(values, readable=False)

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the servers of one run, by names that no capability has. Their tools are ``mcp__<server>__<tool>``."""
        given = _servers(config)
        try:
            values = await self._secrets.require(context.tenant_id, given.references())
        except NotFound as error:
            raise InvalidInput(f"capabilities.mcp needs what is not there. {error.message}", **error.fields) from error
        return {
            f"mcp__{name}": _enclosed(server.resolve(context.tenant_id, values), context)
            for name, server in given.servers.items()
        }


def _enclosed(server: McpServer, context: CapabilityContext) -> McpServer:
    return replace(server, enclosure=context.enclosure) if isinstance(server, StdioMcpServer) else server


def _servers(config: BaseModel) -> _Config:
    assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
    return config


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    secrets = Secrets(parts.database, Vault.of(parts.settings.secrets.source))
    return _McpCapability(secrets, parts.settings.tools)
