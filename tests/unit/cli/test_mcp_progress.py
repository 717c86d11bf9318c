"""A call of an external master that waits tells its MCP client so, which else ends it as hung."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import ClientSession
from mcp.shared.memory import create_client_server_memory_streams

from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.orchestrations import mcp_master
from nova_workers.cli.orchestrations.external_master import ExternalMaster
from nova_workers.client import NovaClient
from nova_workers.contracts.http.orchestrations import MasterReply, OrchestrationCreate


class SlowMaster(ExternalMaster):
    """Answers once its call was waited for."""

    def __init__(self, nova: NovaClient) -> None:
        super().__init__(nova.orchestrations, OrchestrationCreate(task="x"))
        self.may_answer = asyncio.Event()

    async def call(self, tool: str, arguments: dict[str, Any]) -> MasterReply:
        """Wait."""
        await self.may_answer.wait()
        return MasterReply(text="done")


async def test_a_call_that_waits_sends_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_master, "PROGRESS_EVERY_S", 0.01)
    seen: list[tuple[float, str | None]] = []
    async with NovaClient("http://127.0.0.1:1", "k") as nova, create_client_server_memory_streams() as (theirs, ours):
        master = SlowMaster(nova)
        server = mcp_master.build_server(master, [])

        async def note(progress: float, total: float | None, message: str | None) -> None:
            assert total is None
            seen.append((progress, message))
            if len(seen) == 3:
                master.may_answer.set()

        serving = asyncio.create_task(server.run(*ours, server.create_initialization_options()))
        try:
            async with ClientSession(*theirs) as session:
                await session.initialize()
                result = await session.call_tool("spawn_child", {}, progress_callback=note)
                assert result.content[0].model_dump()["text"] == "done"
        finally:
            await stop_tasks((serving,))
    assert [progress for progress, _ in seen] == sorted({progress for progress, _ in seen})
    assert seen[0][1] == "waits since 0.0 s"
