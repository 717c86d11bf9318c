"""Orchestrations: values of a tree of agents that homes, engines and clients share."""

from nova_workers.contracts.orchestration.agents import (
    MAX_PROMPT_CHARS,
    MAX_SUMMARY_CHARS,
    ORCHESTRATION_TOOLS,
    READ_TOOLS,
    RUN_BASH,
    TASK_COMPLETE,
    AgentDescriptor,
    AgentResult,
    CapabilityTools,
    OrchestrationPlace,
    RoutedMessage,
    SpawnRequest,
    ToolEffect,
    is_peer,
)
from nova_workers.contracts.orchestration.history import HistoryEntry, Rationale
from nova_workers.contracts.orchestration.limits import OrchestrationLimits, TreeSpending
from nova_workers.contracts.orchestration.starts import ORCHESTRATIONS, Origin

__all__ = [
    "MAX_PROMPT_CHARS",
    "MAX_SUMMARY_CHARS",
    "ORCHESTRATIONS",
    "ORCHESTRATION_TOOLS",
    "READ_TOOLS",
    "RUN_BASH",
    "TASK_COMPLETE",
    "AgentDescriptor",
    "AgentResult",
    "CapabilityTools",
    "HistoryEntry",
    "OrchestrationLimits",
    "OrchestrationPlace",
    "Origin",
    "Rationale",
    "RoutedMessage",
    "SpawnRequest",
    "ToolEffect",
    "TreeSpending",
    "is_peer",
]
