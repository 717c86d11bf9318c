"""Adds the models that this machine's programs know to the configurations of tenants."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import OrchestrationSettings
from nova_workers.base.errors import InvalidInput, VersionMismatch
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut, OrchestrationConfigView
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.config.values import ResolvedModel
from nova_workers.domain.orchestrations.rules.models.programs import (
    Discovery,
    discover_models,
    merge_models,
    update_programs,
)
from nova_workers.domain.orchestrations.sql.configs import configured_tenants
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)

_EVERY_S = 86_400.0


class ModelDiscovery:
    """Discovers models once a day in each worker process, for tenants that have a configuration."""

    def __init__(
        self,
        database: Database,
        configs: OrchestrationConfigs,
        settings: OrchestrationSettings,
        clock: Clock,
        known_models: Callable[[], Mapping[str, ResolvedModel]],
    ) -> None:
        """Keep what is handed in.

        Args:
            database: Of the ledger.
            configs: The writer of configurations.
            settings: Whether to discover, and whether to update programs first.
            clock: Measures the day, and the age of lists.
            known_models: Returns names that need no configuration.
        """
        self._database = database
        self._configs = configs
        self._settings = settings
        self._clock = clock
        self._known_models = known_models
        self._next_s = 0.0

    async def tick(self) -> int:
        """Discover models if a day has passed, and return how many configurations got new ones."""
        now_s = self._clock.monotonic_s()
        if not self._settings.model_discovery or now_s < self._next_s:
            return 0
        async with self._database.connection() as connection:
            tenants = await configured_tenants(connection)
        if not tenants:
            return 0
        self._next_s = now_s + _EVERY_S
        if self._settings.update_clis:
            _log.info("programs.updated", outcomes=await update_programs(os.environ))
        discovery = await discover_models(os.environ, self._clock.now())
        _log.info("models.discovered", models=len(discovery.models), notes=discovery.notes)
        return sum([await self._add(tenant_id, discovery) for tenant_id in tenants])

    async def _add(self, tenant_id: str, discovery: Discovery) -> bool:
        stored = await self._configs.get(tenant_id)
        try:
            body = await self._merged(stored, tenant_id, discovery)
            if body is None:
                return False
            await self._configs.put(tenant_id, body, actor="discovery", expected=stored.version)
        except VersionMismatch:
            # A person changed it meanwhile; tomorrow is early enough.
            return False
        except InvalidInput as error:
            _log.warning("models.not_added", tenant_id=tenant_id, reason=error.message)
            return False
        return True

    async def _merged(
        self, stored: OrchestrationConfigView, tenant_id: str, discovery: Discovery
    ) -> OrchestrationConfigPut | None:
        config, _ = await self._configs.load(tenant_id)
        merged = merge_models(
            stored.models_text, discovery.models, known=self._known_models(), taken=config.names_of_models()
        )
        return OrchestrationConfigPut(text=stored.text, models_text=merged.text) if merged.added else None
