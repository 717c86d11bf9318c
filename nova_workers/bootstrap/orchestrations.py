"""The tools of agents of orchestrations."""

from __future__ import annotations

from nova_workers.contracts.ports import CancelNotifier, Dispatcher, ShellRunner
from nova_workers.ledger.database import Database
from nova_workers.orchestration.actions import AgentActions
from nova_workers.orchestration.models.choosing import ModelChooser
from nova_workers.orchestration.tools import OrchestrationCapability
from nova_workers.orchestration.views import AgentViews

__all__ = ["build_orchestrator"]


def build_orchestrator(
    database: Database,
    dispatcher: Dispatcher | None,
    notifier: CancelNotifier | None,
    models: ModelChooser,
    shell: ShellRunner,
) -> OrchestrationCapability:
    """Return the tools of agents of orchestrations."""
    return OrchestrationCapability(
        AgentActions(database, dispatcher, notifier, models), AgentViews(database, models), shell
    )
