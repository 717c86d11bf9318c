"""`nova mcp`: an MCP server on stdin and stdout, with which any client of the protocol uses the fleet."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.talk.mcp_relay import Json, Relay

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "mcp")
async def mcp(session: Session) -> None:
    """Serve MCP on stdin and stdout: the agents of the fleet are tools of your own assistant.

    The API's door must be open: NOVA_DOORS names mcp. Runs go on when this program ends.
    """
    await Relay(session.target.url, session.target.api_key, _write).run(_messages())


async def _messages() -> AsyncGenerator[Json]:
    """Yield the messages of the client: one a line."""
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            error = {"code": -32700, "message": "Parse error"}
            await _write({"jsonrpc": "2.0", "id": None, "error": error})
            continue
        if isinstance(message, dict):
            yield message


async def _write(message: Json) -> None:
    # One write a message: those of several requests do not mix. A client reads its pipe, or it gets nothing at all.
    # In ASCII: what the terminal's encoding cannot write, or a client takes for the end of a line, is escaped.
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()
