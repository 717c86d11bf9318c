"""Tools' schemas in the form that a model provider takes. Pure functions: no SDK, no I/O.

A provider refuses a whole request for one tool that it does not take. So a schema from outside is repaired before it is
sent, and a tool that cannot be repaired is left out, by name and with the reason (`nova_workers.engines.mcp.toolbox`).
What a provider takes is a `ToolLimits`.
"""

from nova_workers.engines.tool_schemas.left_out import LeftOutTool, listed, missing_note
from nova_workers.engines.tool_schemas.limits import ANTHROPIC, GEMINI, OPENAI, OPENAI_COMPATIBLE, ToolLimits
from nova_workers.engines.tool_schemas.lint import NOT_AT_ROOT, schema_problem
from nova_workers.engines.tool_schemas.refused import refused_tool
from nova_workers.engines.tool_schemas.repair import RepairedSchema, Unrepairable, repaired

__all__ = [
    "ANTHROPIC",
    "GEMINI",
    "NOT_AT_ROOT",
    "OPENAI",
    "OPENAI_COMPATIBLE",
    "LeftOutTool",
    "RepairedSchema",
    "ToolLimits",
    "Unrepairable",
    "listed",
    "missing_note",
    "refused_tool",
    "repaired",
    "schema_problem",
]
