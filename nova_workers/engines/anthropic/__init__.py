"""The engine on the `anthropic` SDK."""

from nova_workers.engines.anthropic.engine import AnthropicEngine

__all__ = ["AnthropicEngine"]
