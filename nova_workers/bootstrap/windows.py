"""Context windows of models, from the settings."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.base.config.models import ModelSettings
from nova_workers.bootstrap.openai import openai_catalog
from nova_workers.bootstrap.programs import PROGRAMS, program_models
from nova_workers.engines.windows import Windows


class EngineWindows:
    """Implements `nova_workers.contracts.ports.ModelWindows` for all engines."""

    def __init__(self, settings: Settings) -> None:
        self._default = anthropic_windows(settings.model)
        self._openai = openai_catalog(settings)
        self._programs = {name: program_models(settings, name) for name in PROGRAMS}

    def context_tokens(self, engine: str, model: str) -> int:
        """See `ModelWindows.context_tokens`."""
        if engine in self._programs:
            return self._programs[engine].context_tokens(model)
        windows = self._openai if engine == "openai" and self._openai is not None else self._default
        return windows.context_tokens(model)


def anthropic_windows(model: ModelSettings) -> Windows:
    """Return the windows of Anthropic's models."""
    return Windows(model.context_windows, aliases=model.aliases, unknown_tokens=model.context_window_tokens)
