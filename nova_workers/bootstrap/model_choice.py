"""Builds what chooses models for agents of orchestrations."""

from __future__ import annotations

import os

from redis.asyncio import Redis

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from nova_workers.orchestration.config.service import OrchestrationConfigs
from nova_workers.orchestration.models.availability import ProbedAvailability, fleet_availability
from nova_workers.orchestration.models.catalog import ModelCatalog
from nova_workers.orchestration.models.discovering import ModelDiscovery
from nova_workers.orchestration.models.installed import known_models
from nova_workers.orchestration.models.ranked import RankedModels
from nova_workers.workspace.agents.ceilings import CeilingRules

__all__ = ["build_catalog", "build_configs", "build_discovery", "build_model_chooser"]


def build_configs(database: Database, settings: Settings) -> OrchestrationConfigs:
    """Return what reads and writes configurations of orchestrations."""
    return OrchestrationConfigs(
        database,
        settings.tools,
        lambda: known_models(settings.model.aliases),
        ceilings=CeilingRules.of(settings),
    )


def build_catalog(database: Database, redis: Redis, settings: Settings) -> ModelCatalog:
    """Return the catalog of models. Workers report which providers answer; else the settings of this process decide."""
    return ModelCatalog(database, ProbedAvailability(redis, fleet_availability(settings, os.environ)))


def build_model_chooser(database: Database, redis: Redis, settings: Settings) -> RankedModels:
    """Return the choice of models."""
    return RankedModels(build_catalog(database, redis, settings))


def build_discovery(database: Database, settings: Settings, clock: Clock) -> ModelDiscovery:
    """Return the daily discovery of models."""
    return ModelDiscovery(
        database,
        build_configs(database, settings),
        settings.orchestration,
        clock,
        lambda: known_models(settings.model.aliases),
    )
