"""The engine on Google's Gemini CLI."""

from nova_workers.engines.gemini.program import Gemini

__all__ = ["Gemini"]
