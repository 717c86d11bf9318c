"""The only writer of configurations of orchestrations: nothing is stored that has an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from nova_workers.config import ToolSettings
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut, OrchestrationConfigView
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.errors import InvalidInput
from nova_workers.ledger.database import Database
from nova_workers.ledger.orchestrations import configs as ledger
from nova_workers.orchestration.config.parsing import parse_config
from nova_workers.orchestration.config.values import OrchestrationConfig, ResolvedModel

__all__ = ["OrchestrationConfigs"]


class OrchestrationConfigs:
    """Reads and writes the configuration of orchestrations of all tenants."""

    def __init__(
        self, database: Database, tools: ToolSettings, known_models: Callable[[], Mapping[str, ResolvedModel]]
    ) -> None:
        """Keep what is handed in.

        Args:
            database: Where configurations are.
            tools: Which MCP servers the operator permits.
            known_models: Returns the names of models that need no alias. It may block.
        """
        self._database = database
        self._tools = tools
        self._known_models = known_models

    async def put(
        self, tenant_id: str, body: OrchestrationConfigPut, *, actor: str, expected: int | None = None
    ) -> OrchestrationConfigView:
        """Store a configuration as the next version, if it has no errors. An equal one makes no version.

        Raises:
            InvalidInput: It has errors; the message and ``fields['errors']`` name each with its place.
            VersionMismatch: The newest version is not `expected`.
        """
        config = await self._parse(body.text, body.models_text)
        self._check_servers(config)
        async with self._database.transaction() as connection:
            return await ledger.put_config(
                connection,
                tenant_id,
                text=body.text,
                models_text=body.models_text,
                created_by=actor,
                expected=expected,
            )

    async def get(self, tenant_id: str) -> OrchestrationConfigView:
        """Return the newest version; version 0 if there is none."""
        async with self._database.connection() as connection:
            return await ledger.get_config(connection, tenant_id)

    async def load(self, tenant_id: str) -> tuple[OrchestrationConfig, int]:
        """Return the configuration that applies now, and its version.

        Raises:
            InvalidInput: It names what this version of the fleet does not have any more.
        """
        stored = await self.get(tenant_id)
        return await self._parse(stored.text, stored.models_text), stored.version

    async def _parse(self, text: str, models_text: str) -> OrchestrationConfig:
        # Up to half a megabyte of YAML: seconds of work that must not hold the loop.
        return await asyncio.to_thread(lambda: parse_config(text, models_text, known=self._known_models()))

    def _check_servers(self, config: OrchestrationConfig) -> None:
        """Refuse MCP servers that the operator does not permit."""
        servers: dict[str, McpServerForm] = {f"plugins.{name}": server for name, server in config.plugins.items()}
        for expert_id, expert in config.experts.items():
            servers |= {
                f"experts.{expert_id}.mcp_servers.{name}": server for name, server in expert.mcp_servers.items()
            }
        refused: list[InvalidInput] = []
        for field, server in servers.items():
            try:
                server.check(self._tools, field)
            except InvalidInput as error:
                refused.append(error)
        if refused:
            raise InvalidInput(
                "\n".join(error.message for error in refused),
                errors=[{"field": error.fields.get("field"), "message": error.message} for error in refused],
            )
