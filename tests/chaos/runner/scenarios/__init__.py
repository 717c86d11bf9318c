"""Every fault that a chaos run can make. Importing this package fills the registry."""

from __future__ import annotations

from tests.chaos.runner.scenarios import links, postgres, processes, queues, times, valkey, writes
from tests.chaos.runner.scenarios.registry import SCENARIOS, Scenario, Stage

__all__ = ["SCENARIOS", "Scenario", "Stage", "links", "postgres", "processes", "queues", "times", "valkey", "writes"]
