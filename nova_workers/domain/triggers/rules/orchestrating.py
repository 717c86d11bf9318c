"""Plans the orchestrations of due triggers, before these are locked: choosing a model takes queries of its own.

Above: `orchestrations`, which implements `TreePlanner`. Below: the ledger, which inserts what was planned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.domain.orchestrations.sql.spawning import NewTree
from nova_workers.domain.triggers.sql.due import OrchestratingTrigger

_NOT_PLANNED: Final = "It could not be planned, because of an unexpected error; the log of the worker has it."

_log = structlog.get_logger(__name__)


class TreePlanner(Protocol):
    """Plans orchestrations of triggers."""

    async def plan(self, tenant_id: str, agent_id: str, task: str) -> NewTree:
        """Return an orchestration under an agent, ready to be inserted. Nothing is stored.

        Raises:
            NovaError: None can be started; the message says why.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plans:
    """The orchestrations that triggers may start, and why others may not, by trigger."""

    trees: dict[str, NewTree] = field(default_factory=dict[str, NewTree])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def triggers(self) -> list[str]:
        """The triggers that were considered."""
        return [*self.trees, *self.refused]


async def plan_all(planner: TreePlanner, triggers: Iterable[OrchestratingTrigger]) -> Plans:
    """Plan the orchestrations of triggers.

    Raises:
        Unavailable: The database does not answer; the next tick does the work.
    """
    plans = Plans()
    for trigger in triggers:
        try:
            plans.trees[trigger.id] = await planner.plan(trigger.tenant_id, trigger.agent_id, trigger.task)
        except Unavailable:
            raise
        except NovaError as error:
            plans.refused[trigger.id] = error.message
        except Exception:
            # One bad trigger does not block the others, of all tenants.
            _log.exception("trigger.not_planned", tenant_id=trigger.tenant_id, trigger_id=trigger.id)
            plans.refused[trigger.id] = _NOT_PLANNED
    return plans
