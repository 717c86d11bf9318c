"""The public kit for code of users: tools in Python that agents of a fleet can call, agents in Python, and effects.

Importing it loads no server, no engine and no MCP library.
"""

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.ended_runs import EndedRun, RunError
from nova_workers.sdk.agents import agent
from nova_workers.sdk.context import NotAnswered, ToolContext
from nova_workers.sdk.declaration import tool
from nova_workers.sdk.durable import Answer, Context, Message, ModelFailed, StepFailed
from nova_workers.sdk.effects import effect

__all__ = [
    "Answer",
    "Context",
    "EndedRun",
    "Message",
    "ModelFailed",
    "NotAnswered",
    "RunError",
    "StepFailed",
    "ToolContext",
    "ToolFailure",
    "agent",
    "effect",
    "tool",
]
