"""Builds what chooses models for agents of orchestrations."""

from __future__ import annotations

import os

from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.models.availability import ProbedAvailability, fleet_availability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.ledger.database import Database


def build_configs(database: Database, settings: Settings) -> OrchestrationConfigs:
    """Return the service of configurations of orchestrations."""
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
