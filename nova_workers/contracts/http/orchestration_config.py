"""The HTTP contract of the configuration of orchestrations, and of the models that they choose from."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from nova_workers.contracts.bodies import Body, View

__all__ = ["MAX_CONFIG_CHARS", "OrchestrationConfigInfo", "OrchestrationConfigPut", "OrchestrationConfigView"]

MAX_CONFIG_CHARS = 262_144

_Yaml = Annotated[str, Field(max_length=MAX_CONFIG_CHARS)]


class OrchestrationConfigPut(Body):
    """A whole configuration, in YAML."""

    text: _Yaml
    """The seven sections."""
    models_text: _Yaml = ""
    """A ``models.yaml``: the sections `models` and `model_registry`, over which those of `text` win."""


class OrchestrationConfigView(View):
    """A version of the configuration of orchestrations."""

    version: int
    """0 if none was ever stored: the defaults apply."""
    text: str
    models_text: str
    created_by: str
    """`person`, `discovery`, or `default` for version 0."""
    created_at: datetime | None


class OrchestrationConfigInfo(View):
    """A version, without its texts."""

    version: int
    created_by: str
    created_at: datetime
    size_bytes: int
