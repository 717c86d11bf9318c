"""The tools of agents of orchestrations, and what starts orchestrations for agents."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.bootstrap.model_choice import build_configs
from nova_workers.contracts.ports import ShellRunner
from nova_workers.domain.capabilities.rules import CapabilityRegistry
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.domain.orchestrations.rules.starting import OrchestrationStarter
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.tools.capability import OrchestrationCapability
from nova_workers.ledger.work import Work


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
    return OrchestrationCapability(actions, AgentViews(calls.work.database, models), shell)


def build_starter(work: Work, models: ModelChooser, settings: Settings) -> OrchestrationStarter:
    """Return the service that starts orchestrations in a worker."""
    orchestrations = Orchestrations(work, models, settings.agent_directory)
    return OrchestrationStarter(orchestrations, build_configs(work.database, settings))
