"""The engine on the `anthropic` SDK."""

from nova_workers.engines.anthropic.engine import AnthropicEngine
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.windows import Windows

__all__ = ["AnthropicEngine", "Profile", "Windows"]
