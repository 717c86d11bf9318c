"""The engine on the Claude Agent SDK. Importing it needs the extra ``claude-agent``."""

from nova_workers.engines.claude_agent.engine import ClaudeAgentEngine

__all__ = ["ClaudeAgentEngine"]
