"""The engine on the `anthropic` SDK."""

from nova_workers.engines.anthropic.credentials import Profile
from nova_workers.engines.anthropic.engine import AnthropicEngine
from nova_workers.engines.anthropic.prices import ModelPrice
from nova_workers.engines.anthropic.windows import Windows

__all__ = ["AnthropicEngine", "ModelPrice", "Profile", "Windows"]
