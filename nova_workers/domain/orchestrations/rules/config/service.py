"""The only writer of configurations of orchestrations: nothing is stored that has an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from nova_workers.base.config import ToolSettings
from nova_workers.base.errors import InvalidInput, VersionMismatch
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut, OrchestrationConfigView
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.domain.agents.rules.authors import Authored, AuthorRights, Holdings, check_author, holdings_of_agents
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.entries import GrantForms
from nova_workers.domain.agents.sql.records import live_specs
from nova_workers.domain.orchestrations.rules.config.values import (
    BUILT_IN_PROVIDERS,
    OrchestrationConfig,
    ResolvedModel,
)
from nova_workers.domain.orchestrations.sql import configs as ledger
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.database import Connection, Database

_PARSING: Final = "nova_workers.domain.orchestrations.rules.config.parsing"
"""Imported with the first configuration, since it brings the library for YAML: 1 MB of an idle API."""


@dataclass(frozen=True, slots=True)
class ConfigAuthor:
    """The author of a configuration.

    Attributes:
        rights: What the author may give.
        grants: Reads the configurations of the capabilities of agents that the configuration steers.
    """

    rights: AuthorRights
    grants: GrantForms

    @property
    def may_give_all(self) -> bool:
        """Whether the author has every right. Nothing is compared then."""
        return not any(self.rights.lacking())


class OrchestrationConfigs:
    """Reads and writes the configuration of orchestrations of all tenants."""

    def __init__(
        self,
        database: Database,
        tools: ToolSettings,
        known_models: Callable[[], Mapping[str, ResolvedModel]],
        *,
        ceilings: CeilingRules,
    ) -> None:
        """Keep what is handed in.

        Args:
            database: Where configurations are.
            tools: Which MCP servers the operator permits.
            known_models: Returns the names of models that need no alias. It may block.
            ceilings: Checks what the operator permits a tenant's agents at most.
        """
        self._database = database
        self._tools = tools
        self._known_models = known_models
        self._ceilings = ceilings

    async def put(
        self,
        tenant_id: str,
        body: OrchestrationConfigPut,
        *,
        actor: str,
        author: ConfigAuthor | None = None,
        expected: int | None = None,
    ) -> OrchestrationConfigView:
        """Store a configuration as the next version, if it has no errors. An equal one makes no version.

        Every agent of the tenant may have an orchestration, whose agents the configuration steers.

        Args:
            tenant_id: Whose.
            body: The configuration.
            actor: Who writes it, for the version.
            author: What the author may give; None is the fleet itself.
            expected: The version that this one follows; None follows the newest.

        Raises:
            InvalidInput: It has errors; the message and ``fields['errors']`` name each with its place.
            Forbidden: It exceeds a ceiling of the tenant, or the author may not write it; names the field.
            VersionMismatch: The newest version is not `expected`.
        """
        config = await self._parse(body.text, body.models_text)
        self._check_servers(config)
        while True:
            present = await self.get(tenant_id)
            if expected not in (None, present.version):
                raise ledger.not_at(expected, present.version)
            before = None if author is None or author.may_give_all else await self._written(present)
            async with self._database.transaction() as connection:
                if author is not None:
                    self._ceilings.check(tenant_id, _own(config), await get_ceilings(connection, tenant_id))
                    held = await _held_by_agents(connection, tenant_id, author)
                    check_author(author.rights, Authored(config, before, steers=held))
                try:
                    return await ledger.put_config(
                        connection,
                        tenant_id,
                        text=body.text,
                        models_text=body.models_text,
                        created_by=actor,
                        expected=present.version,
                    )
                except VersionMismatch:
                    # Another writer was first. What the author changes is compared with that version.
                    if expected is not None:
                        raise

    async def _written(self, present: OrchestrationConfigView) -> OrchestrationConfig:
        """Return a stored configuration; the defaults, if it names what this version of the fleet has no more."""
        try:
            return await self._parse(present.text, present.models_text)
        except InvalidInput:
            return OrchestrationConfig()

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
        return await asyncio.to_thread(self._parsed, text, models_text)

    def _parsed(self, text: str, models_text: str) -> OrchestrationConfig:
        config: OrchestrationConfig = import_module(_PARSING).parse_config(
            text, models_text, known=self._known_models()
        )
        return config

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


async def _held_by_agents(connection: Connection, tenant_id: str, author: ConfigAuthor) -> Holdings:
    """Return the holdings of the tenant's agents, if the author may not give all of them."""
    if author.may_give_all:
        return {}
    return holdings_of_agents(await live_specs(connection, tenant_id), author.grants)


def _own(config: OrchestrationConfig) -> OrchestrationConfig:
    """Return a configuration without the providers that every one has."""
    providers = {
        name: provider for name, provider in config.providers.items() if provider != BUILT_IN_PROVIDERS.get(name)
    }
    return config.model_copy(update={"providers": providers})
