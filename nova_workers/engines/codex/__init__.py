"""The engine on OpenAI's Codex program."""

from nova_workers.engines.codex.program import Codex

__all__ = ["Codex"]
