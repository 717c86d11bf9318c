"""An MCP server as a child process that violates the protocol.

Its tool ``sulk`` stops reading, never answers and does not end on request; ``refuse`` is answered with an error whose
code the client library uses for a closed connection. It is written in bare JSON-RPC, because the library's servers
follow the protocol.
"""

import json
import os
import signal
import sys
import time
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("sulk", "refuse", "pid")]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request: a result or an error."""
    if method == "initialize":
        info = {"name": "rude", "version": str(os.getpid())}
        about = {"capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": {"protocolVersion": params["protocolVersion"], **about}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        if params["name"] == "sulk":
            while True:
                time.sleep(60)
        if params["name"] == "refuse":
            return {"error": {"code": -32000, "message": "no such customer"}}
        return {"result": {"content": [{"type": "text", "text": str(os.getpid())}]}}
    return {"error": {"code": -32601, "message": "no"}}


def main() -> None:
    """Serve on standard input and output."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a") as pids:
            pids.write(f"{os.getpid()}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params", {}))}
            print(json.dumps(reply), flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
