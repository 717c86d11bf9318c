"""What a call of a tool in Python costs over one of the worker itself, and the memory of its process."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from mcp.server import Server, ServerRequestContext
from mcp.types import CallToolRequestParams, CallToolResult, TextContent, Tool

from nova_workers.contracts.engine import InProcessMcpServer, ToolCall
from nova_workers.contracts.tool_programs import ToolSource
from nova_workers.contracts.user_tools import GivenAnswer, ListedTool
from nova_workers.domain.capabilities.rules import CapabilityContext
from nova_workers.domain.capabilities.rules.seam import UserServer
from nova_workers.domain.capabilities.rules.serving_user_tools import user_server
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.tool_programs import McpToolPrograms
from nova_workers.engines.mcp.toolbox import Toolbox
from tests.bench.figures import Figure, Result, percentile
from tests.bench.stage import Bench
from tests.support.processes.inspection import command_lines, descendants

_CODE = '''
from nova_workers.sdk import tool

@tool(read_only=True)
def plain(text: str) -> str:
    """Return the text."""
    return text

@tool(read_only=True)
async def asynchronous(text: str) -> str:
    """Return the text."""
    return text
'''
_NAMES = ("own", "plain", "asynchronous")
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_MOST_OVER_MS = 3.0
_MOST_MB = 90.0
_WARM = 20


async def measure_tools(bench: Bench) -> Result:
    """Call a tool of the worker, a plain function and an async one, in turn, as a turn does."""
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60))
    try:
        with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
            before = _processes()
            took_ms = await _calls(programs, Path(folder), bench.sizes.tool_calls)
            (process,) = _processes() - before
            used_mb = psutil.Process(process).memory_info().rss / 1e6
    finally:
        await programs.close()
    own, plain, asynchronous = (percentile(took_ms[name], 0.5) for name in _NAMES)
    return Result(
        "tools",
        "a call of a tool in Python, over a call of a tool of the worker",
        (
            Figure("plain, p50", plain - own, "ms", bound=_MOST_OVER_MS),
            Figure("async, p50", asynchronous - own, "ms", bound=_MOST_OVER_MS),
            Figure("its process", used_mb, "MB", bound=_MOST_MB),
        ),
        notes=(f"{bench.sizes.tool_calls} calls of each, in turn; one of the worker takes {own:.2f} ms (p50).",),
    )


async def _no_answers(_: str, __: str) -> tuple[GivenAnswer, ...]:
    return ()


async def _calls(programs: McpToolPrograms, folder: Path, number: int) -> dict[str, list[float]]:
    (folder / "tools").mkdir()
    (folder / "tools" / "bench.py").write_text(_CODE, encoding="utf-8")
    tools = tuple(ListedTool(name=name, description="", input_schema=_SCHEMA) for name in _NAMES[1:])
    context = CapabilityContext("ten_bench", "a", "thr_bench", "run_bench")
    users = user_server(UserServer(ToolSource("project:bench", f"{folder}/"), tools, context), programs, _no_answers)
    pool = ConnectionPool()
    toolbox = Toolbox({"own": _own(), "project:bench": users}, pool=pool)
    took_ms: dict[str, list[float]] = {name: [] for name in _NAMES}
    try:
        for turn in range(number + _WARM):
            for name in _NAMES:
                began_s = time.perf_counter()
                outcome = await toolbox.call(ToolCall(f"toolu_{turn}", name, {"text": "x"}, step=0, sequence=turn))
                if turn >= _WARM:
                    took_ms[name].append((time.perf_counter() - began_s) * 1000)
                assert not outcome.failed, outcome
    finally:
        await toolbox.close()
        await pool.close()
    return took_ms


def _own() -> InProcessMcpServer:
    tool = Tool(name="own", description="Return the text.", input_schema=_SCHEMA)

    async def call(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=(params.arguments or {})["text"])])

    return InProcessMcpServer(lambda: Server("own", on_call_tool=call), listing=[tool])


def _processes() -> set[int]:
    lines = command_lines(descendants(os.getpid()))
    return {pid for pid, line in lines.items() if "sdk.serve" in line and "child_supervisor" not in line}
