"""Settings: one frozen, nested value, read from the environment in `bootstrap` only."""

from nova_workers.base.config.console import ConsoleSettings
from nova_workers.base.config.delivery import DeliverySettings
from nova_workers.base.config.flower import FlowerSettings
from nova_workers.base.config.models import ClaudeAgentSettings, ModelSettings
from nova_workers.base.config.oidc import OidcSettings, RoleGrant
from nova_workers.base.config.openai import OpenAIProviderSetting, OpenAISettings
from nova_workers.base.config.orchestration import OrchestrationSettings
from nova_workers.base.config.programs import VendorProgramSettings
from nova_workers.base.config.secrets import SecretSettings
from nova_workers.base.config.sections import (
    ApiSettings,
    AudioSettings,
    EffectSettings,
    PromptSettings,
    RetentionSettings,
    RunSettings,
    StreamSettings,
    TaskSettings,
    TelemetrySettings,
    ToolSettings,
    TriggerSettings,
    WorkerSettings,
)
from nova_workers.base.config.settings import Settings, load_settings, unknown_variables

__all__ = [
    "ApiSettings",
    "AudioSettings",
    "ClaudeAgentSettings",
    "ConsoleSettings",
    "DeliverySettings",
    "EffectSettings",
    "FlowerSettings",
    "ModelSettings",
    "OidcSettings",
    "OpenAIProviderSetting",
    "OpenAISettings",
    "OrchestrationSettings",
    "PromptSettings",
    "RetentionSettings",
    "RoleGrant",
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
