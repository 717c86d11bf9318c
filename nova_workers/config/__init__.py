"""Settings: one frozen, nested value, read from the environment in `bootstrap` only."""

from nova_workers.config.settings import (
    ApiSettings,
    ClaudeAgentSettings,
    EffectSettings,
    ModelSettings,
    RunSettings,
    Settings,
    StreamSettings,
    TelemetrySettings,
    ToolSettings,
    WorkerSettings,
    load_settings,
)

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
