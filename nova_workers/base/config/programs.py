"""The settings of the engines that run a vendor's program."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from nova_workers.base.config.forms import Count
from nova_workers.base.config.models import ModelPriceSetting
from nova_workers.base.config.sections import Section


class VendorProgramSettings(Section):
    """One program: Codex or Gemini CLI."""

    api_key: SecretStr | None = None
    """None: the vendor's own variable, OPENAI_API_KEY or GEMINI_API_KEY."""
    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """None: the vendor's own variable, OPENAI_BASE_URL or GOOGLE_GEMINI_BASE_URL, else the vendor."""
    model: Annotated[str | None, BeforeValidator(lambda given: given or None)] = None
    """What ``haiku``, ``sonnet`` and ``opus`` mean with this engine where `aliases` does not say."""
    aliases: dict[str, str] = Field(default_factory=dict[str, str])
    """Models by alias, with this engine."""
    fallbacks: tuple[str, ...] = ()
    """Models to use instead, in this order, if the wanted one is unavailable."""
    prices: dict[str, ModelPriceSetting] = Field(default_factory=dict[str, ModelPriceSetting])
    """By model, ``*`` for all others; they go before the built-in list."""
    context_windows: dict[str, Count] = Field(default_factory=dict[str, Count])
    """In tokens, likewise."""
    program: Path | None = None
    """None looks for the program on the PATH."""
    max_processes: Count = 8
    """Concurrent turns of one worker; others wait. Each is a process."""
