"""`nova acp`: the command that editors start."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from acp.connection import Connection
from acp.stdio import stdio_streams

from nova_workers.cli.acp.agent import FleetAgent
from nova_workers.cli.command import Session, remote

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LINE_BYTES = 50 * 1024 * 1024
"""Longest message of an editor: a prompt with pictures."""


@remote(app, "acp")
async def acp(
    session: Session,
    agent: Annotated[str, typer.Option(help="The agent of new sessions.")] = "nova",
    model: Annotated[list[str] | None, typer.Option(help="Offer this model too; may be given again.")] = None,
    shared_disk: Annotated[
        bool, typer.Option("--shared-disk", help="Workers see the editor's files under the same paths.")
    ] = False,
) -> None:
    """Serve the Agent Client Protocol on stdin and stdout: an agent of the fleet in your editor.

    The editor starts it; see docs/editors.md for its settings. Files, terminals and tool servers of the editor are
    tools of the agent. A run that the editor leaves goes on; load the session to come back to it.
    """
    reader, writer = await stdio_streams(limit=_LINE_BYTES)
    await serve(FleetAgent(session.client, agent, models=model or (), shares_disk=shared_disk), reader, writer)


async def serve(agent: FleetAgent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one editor until it closes its end."""
    connection = Connection(agent.router, writer, reader, listening=False)
    agent.connect(connection)
    try:
        await connection.main_loop()
    finally:
        await agent.close()
        await asyncio.shield(connection.close())
        writer.close()
