"""The public kit for code of users: tools in Python that agents can call, agents in Python, effects and evaluators.

Importing it loads no server, no engine and no MCP library.
"""

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.ended_runs import EndedRun, RunError
from nova_workers.contracts.judged_answers import JudgedAnswer, JudgedCall, Judgement
from nova_workers.sdk.agents import agent
from nova_workers.sdk.context import NotAnswered, ToolContext
from nova_workers.sdk.declaration import tool
from nova_workers.sdk.durable import Answer, Context, Message, ModelFailed, StepFailed
from nova_workers.sdk.effects import effect
from nova_workers.sdk.evaluators import evaluator

__all__ = [
    "Answer",
    "Context",
    "EndedRun",
    "JudgedAnswer",
    "JudgedCall",
    "Judgement",
    "Message",
    "ModelFailed",
    "NotAnswered",
    "RunError",
    "StepFailed",
    "ToolContext",
    "ToolFailure",
    "agent",
    "effect",
    "evaluator",
    "tool",
]
