"""Builds the trigger ticker."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.outbound.requests import Outbound
from nova_workers.domain.triggers.rules.firing import TriggerTicker
from nova_workers.domain.triggers.rules.gate_addresses import gate_rules
from nova_workers.domain.triggers.rules.gates import Gates
from nova_workers.domain.triggers.rules.orchestrating import TreePlanner
from nova_workers.ledger.work import Work


def build_trigger_ticker(work: Work, settings: Settings, metrics: Metrics, *, planner: TreePlanner) -> TriggerTicker:
    """Build the ticker that fires triggers. Gates may reach only what agents' tools may fetch."""
    triggers = settings.triggers
    rules = gate_rules(settings.tools, timeout_s=triggers.gate_timeout_s)
    gates = Gates(work.database, Outbound(rules), at_once=triggers.gates_at_once)
    return TriggerTicker(work, triggers, metrics, gates=gates, planner=planner)
