"""The public kit for code of users: tools in Python that agents of a fleet can call, and agents in Python.

Importing it loads no server, no engine and no MCP library.
"""

from nova_workers.base.errors import ToolFailure
from nova_workers.sdk.agents import agent
from nova_workers.sdk.context import NotAnswered, ToolContext
from nova_workers.sdk.declaration import tool
from nova_workers.sdk.durable import Answer, Context, Message, ModelFailed, StepFailed

__all__ = [
    "Answer",
    "Context",
    "Message",
    "ModelFailed",
    "NotAnswered",
    "StepFailed",
    "ToolContext",
    "ToolFailure",
    "agent",
    "tool",
]
