"""An MCP server as a child process that, once called, neither reads, answers, nor ends when it is asked to.

Written on bare JSON-RPC: the library's servers are too polite.
"""

import json
import os
import signal
import sys
import time
from typing import Any

TOOLS = [{"name": "sulk", "inputSchema": {"type": "object"}}]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for one that is not known."""
    if method == "initialize":
        info = {"name": "rude", "version": str(os.getpid())}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    return {"tools": TOOLS} if method == "tools/list" else None


def main() -> None:
    """Serve on standard input and output."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a") as pids:
            pids.write(f"{os.getpid()}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            while True:
                time.sleep(60)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}))
            reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            reply |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
            print(json.dumps(reply), flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
