"""Settings: one frozen, nested value, read from the environment in `bootstrap` only."""

from nova_workers.config.console import ConsoleSettings
from nova_workers.config.delivery import DeliverySettings
from nova_workers.config.flower import FlowerSettings
from nova_workers.config.models import ClaudeAgentSettings, ModelSettings
from nova_workers.config.openai import OpenAIProviderSetting, OpenAISettings
from nova_workers.config.orchestration import OrchestrationSettings
from nova_workers.config.programs import VendorProgramSettings
from nova_workers.config.sections import (
    ApiSettings,
    AudioSettings,
    EffectSettings,
    PromptSettings,
    RetentionSettings,
    RunSettings,
    SecretSettings,
    StreamSettings,
    TaskSettings,
    TelemetrySettings,
    ToolSettings,
    TriggerSettings,
    WorkerSettings,
)
from nova_workers.config.settings import Settings, load_settings, unknown_variables

__all__ = [
    "ApiSettings",
    "AudioSettings",
    "ClaudeAgentSettings",
    "ConsoleSettings",
    "DeliverySettings",
    "EffectSettings",
    "FlowerSettings",
    "ModelSettings",
    "OpenAIProviderSetting",
    "OpenAISettings",
    "OrchestrationSettings",
    "PromptSettings",
    "RetentionSettings",
    "RunSettings",
    "SecretSettings",
    "Settings",
    "StreamSettings",
    "TaskSettings",
    "TelemetrySettings",
    "ToolSettings",
    "TriggerSettings",
    "VendorProgramSettings",
    "WorkerSettings",
    "load_settings",
    "unknown_variables",
]
