"""A client of the MCP server: it calls an agent's tool as a task."""

from __future__ import annotations

from typing import Final

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json

_TASKS: Final[Json] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
_VERSION: Final = "2026-07-28"


async def follow_task(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Call an agent's tool as a task, and look at the task until it ends."""
    arguments = {"message": message, "request_id": key}
    name = f"ask_{exchange.agent}"
    made = await _call(exchange, "tools/call", {"name": name, "arguments": arguments}, name, key)
    task_id: str = made["taskId"]
    while (task := await _call(exchange, "tasks/get", {"taskId": task_id}, task_id, key))["status"] == "working":
        await exchange.pause()
    text = task["result"]["structuredContent"]["text"] if task["status"] == "completed" else None
    failed = task["status"] == "completed" and task["result"].get("isError")
    return DoorReading(0.0, "mcp-task", key, task_id, "failed" if failed else task["status"], text or "")


async def _call(exchange: Exchange, method: str, params: Json, name: str, key: str) -> Json:
    meta = {
        "io.modelcontextprotocol/protocolVersion": _VERSION,
        "io.modelcontextprotocol/clientCapabilities": _TASKS,
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _VERSION,
        "mcp-method": method,
        "mcp-name": name,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}

    def run_of(message: Json) -> str | None:
        return message.get("result", {}).get("taskId")

    message = await exchange.until_answered("/mcp", key, body, headers=headers, run_of=run_of)
    return message["result"]
