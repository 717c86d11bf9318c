"""An MCP server as a child process, for the tests: echoes, reports its pid and its progress, hangs, or dies.

It is written in bare JSON-RPC: importing the library's server takes each child most of a second of CPU.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

_NOTHING: Json = {"type": "object", "properties": {}}
_TEXT: Json = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_hanging: dict[str | int, str] = {}
_canceled: list[str] = []


def send(message: Json) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def complain() -> str:
    """Write to stderr."""
    print(f"no good: {os.environ.get('GREETING')}", file=sys.stderr, flush=True)
    return "said"


def count(progress_token: str | int | None) -> str:
    """Report progress."""
    for number in (1, 2, 3):
        report = {"progressToken": progress_token, "progress": number, "total": 3, "message": f"at {number}"}
        send({"method": "notifications/progress", "params": report})
    return "counted"


# A tool's schema, and its text from the parameters of a call.
TOOLS: dict[str, tuple[Json, Callable[[Json], str]]] = {
    "echo": (_TEXT, lambda called: f"{os.environ.get('GREETING', '')}{called['arguments']['text']}"),
    "pid": (_NOTHING, lambda _: str(os.getpid())),
    "complain": (_NOTHING, lambda _: complain()),
    "die": (_NOTHING, lambda _: os._exit(1)),
    "count": (_NOTHING, lambda called: count(called.get("_meta", {}).get("progressToken"))),
    "canceled": (_NOTHING, lambda _: ",".join(_canceled)),
}


def result(method: str, params: Json) -> Json | None:
    """Return the result of a request; None for an unknown method."""
    match method:
        case "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "child", "version": "1"}}
            return {"protocolVersion": params["protocolVersion"], **about}
        case "ping":
            return {}
        case "tools/list":
            schemas = {name: schema for name, (schema, _) in TOOLS.items()} | {"hang": _NOTHING}
            reads = {"annotations": {"readOnlyHint": True}}
            return {
                "tools": [
                    {"name": name, "inputSchema": schema, **(reads if name == "pid" else {})}
                    for name, schema in schemas.items()
                ]
            }
        case "tools/call":
            _, call = TOOLS[params["name"]]
            return {"content": [{"type": "text", "text": call(params)}]}
        case _:
            return None


def main() -> None:
    """Serve on standard input and output."""
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if method == "notifications/cancelled" and params.get("requestId") in _hanging:
            _canceled.append(_hanging.pop(params["requestId"]))
        elif method == "tools/call" and params["name"] == "hang":
            _hanging[message["id"]] = "hang"
        elif method is not None and "id" in message:
            found = result(method, params)
            answer = {"error": {"code": -32601, "message": "no"}} if found is None else {"result": found}
            send({"id": message["id"], **answer})


if __name__ == "__main__":
    main()
