"""Builds what looks for new models on a worker's machine."""

from __future__ import annotations

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.bootstrap.model_choice import build_configs
from nova_workers.domain.orchestrations.rules.models.discovery import ModelDiscovery
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.ledger.database import Database


def build_discovery(database: Database, settings: Settings, clock: Clock) -> ModelDiscovery:
    """Return the daily discovery of models."""
    return ModelDiscovery(
        database,
        build_configs(database, settings),
        settings.orchestration,
        clock,
        lambda: known_models(settings.model.aliases),
    )
