"""The registry of all capabilities, for tests that read grants and serve none."""

from __future__ import annotations

from typing import Any, cast

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.domain.capabilities.rules import CapabilityRegistry, default_registry


def all_grants() -> CapabilityRegistry:
    """Return a registry for an operator who permits every program. It has no database."""
    permitted = Settings.model_validate({"tools": {"mcp_commands": ["*"], "mcp_env": ["*"]}})
    return default_registry(cast(Any, None), permitted, SystemClock())
