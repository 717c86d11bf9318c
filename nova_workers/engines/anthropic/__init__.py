"""The engine on the `anthropic` SDK."""

from nova_workers.engines.anthropic.catalog import Windows
from nova_workers.engines.anthropic.credentials import Profile
from nova_workers.engines.anthropic.engine import AnthropicEngine

__all__ = ["AnthropicEngine", "Profile", "Windows"]
