"""The fleet as an MCP server: a tool for each agent, and runs as tasks.

Each request is complete in itself, in every version of the protocol: any API process answers it, before and after any
restart. What the protocol calls a task is a run, and its id is the run's.
"""

from .endpoint import ROUTES
from .protocol import error_document

__all__ = ["ROUTES", "error_document"]
