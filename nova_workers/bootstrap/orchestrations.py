"""The tools of agents of orchestrations, and what starts orchestrations for agents."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.bootstrap.model_choice import build_configs
from nova_workers.capabilities import CapabilityRegistry
from nova_workers.capabilities.transactions import CallTransactions
from nova_workers.contracts.ports import ShellRunner
from nova_workers.ledger.work import Work
from nova_workers.orchestration.actions import AgentActions
from nova_workers.orchestration.models.choosing import ModelChooser
from nova_workers.orchestration.service import Orchestrations
from nova_workers.orchestration.starting import OrchestrationStarter
from nova_workers.orchestration.tools import OrchestrationCapability
from nova_workers.orchestration.views import AgentViews

__all__ = ["build_orchestrator", "build_starter"]


def build_orchestrator(
    calls: CallTransactions,
    models: ModelChooser,
    shell: ShellRunner,
    settings: Settings,
    capabilities: CapabilityRegistry,
) -> OrchestrationCapability:
    """Return the tools of agents of orchestrations, which give tools of these capabilities to their children."""
    actions = AgentActions(
        calls.work,
        models,
        capabilities.tool_effects,
        directory_of=settings.agent_directory,
    )
    return OrchestrationCapability(actions, AgentViews(calls.database, models), shell)


def build_starter(work: Work, models: ModelChooser, settings: Settings) -> OrchestrationStarter:
    """Return what starts orchestrations in a worker."""
    orchestrations = Orchestrations(work.database, work, models, settings.agent_directory)
    return OrchestrationStarter(orchestrations, build_configs(work.database, settings))
