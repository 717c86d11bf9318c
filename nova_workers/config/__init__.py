"""Settings: one frozen, nested value, read from the environment in `bootstrap` only."""

from nova_workers.config.sections import (
    ApiSettings,
    ClaudeAgentSettings,
    EffectSettings,
    ModelSettings,
    RunSettings,
    StreamSettings,
    TelemetrySettings,
    ToolSettings,
    WorkerSettings,
)
from nova_workers.config.settings import Settings, load_settings

__all__ = [
    "ApiSettings",
    "ClaudeAgentSettings",
    "EffectSettings",
    "ModelSettings",
    "RunSettings",
    "Settings",
    "StreamSettings",
    "TelemetrySettings",
    "ToolSettings",
    "WorkerSettings",
    "load_settings",
]
