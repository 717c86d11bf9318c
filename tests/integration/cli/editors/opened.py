"""An editor that `nova acp` serves, in the process of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

from acp import PROTOCOL_VERSION
from acp.client.connection import ClientSideConnection
from acp.interfaces import Client
from acp.schema import ClientCapabilities, FileSystemCapabilities

from nova_workers.cli.acp.agent import FleetAgent
from nova_workers.cli.acp.command import serve
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from tests.integration.cli.editors.editor import TestEditor
from tests.support.processes.fleet import Fleet

_CAPABILITIES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True)


@asynccontextmanager
async def opened(
    fleet: Fleet,
    editor: TestEditor,
    capabilities: ClientCapabilities = _CAPABILITIES,
    agent_id: str = "nova",
    *,
    url: str | None = None,
    retry: Retry | None = None,
) -> AsyncGenerator[ClientSideConnection]:
    """Serve an editor in this process, as the command does in its own.

    Args:
        fleet: Whose key is used.
        editor: What the agent asks.
        capabilities: The editor's.
        agent_id: The agent of its sessions.
        url: Where the fleet is reached; None for its API.
        retry: How often the fleet's client tries again.
    """
    ends = [await asyncio.open_connection(sock=each) for each in socket.socketpair()]
    async with NovaClient(url or fleet.api_url, fleet.api_key, retry=retry) as client:
        serving = asyncio.create_task(serve(FleetAgent(client, agent_id), *ends[0]))
        agent = ClientSideConnection(cast("Client", editor), ends[1][1], ends[1][0], use_unstable_protocol=True)
        try:
            await agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities)
            yield agent
        finally:
            await agent.close()
            ends[1][1].close()
            await serving
