"""A Bot API server of ours, and processes of the channel on the fleet."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import AgentCreate, RunView
from tests.support.processes.fleet import Fleet, FleetProcess, add_api_key
from tests.support.servers.telegram_server import TOKEN, TelegramServer, telegram_server
from tests.support.waiting import until

__all__ = ["ANN", "BEN", "MALLORY", "Script", "Stage", "soon"]

ANN, BEN, MALLORY = 7, 8, 666
soon = partial(until, timeout_s=60.0)


class Stage:
    """A Telegram with one bot, a tenant of its own, and the channel's processes.

    Attributes:
        env: Variables of the channel's processes.
    """

    def __init__(self, telegram: TelegramServer, nova: NovaClient, env: dict[str, str], folder: Path) -> None:
        self.telegram = telegram
        self.nova = nova
        self.env = env
        self._folder = folder
        self.processes: list[FleetProcess] = []

    def start(self, **env: str) -> FleetProcess:
        """Start one process of the channel."""
        command = [sys.executable, "-m", "nova_workers.cli", "channels", "telegram"]
        log = self._folder / f"telegram-{len(self.processes)}.log"
        self.processes.append(FleetProcess("telegram", command, {**self.env, **env}, log))
        return self.processes[-1]

    def logs(self) -> str:
        """Return everything that the processes wrote."""
        return "\n".join(process.log.read_text(errors="replace") for process in self.processes)

    async def agent(self, **spec: Any) -> str:
        """Create an agent on the scripted engine."""
        agent_id = f"agent-{uuid.uuid4().hex[:8]}"
        await self.nova.agents.create(AgentCreate.model_validate({"id": agent_id, "name": "Chatter", **spec}))
        return agent_id

    async def runs(self, conversation: str = str(ANN), channel: str = "telegram") -> list[RunView]:
        """Return the runs of a conversation's thread, newest first."""
        threads = (await self.nova.threads.list(label=f"{channel}:{conversation}")).items
        return [run for thread in threads for run in (await self.nova.threads.runs(thread.id)).items]


@pytest.fixture
async def stage(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Stage]:
    key, _ = await add_api_key(fleet.env["NOVA_DATABASE_URL"])
    async with telegram_server() as telegram, NovaClient(fleet.api_url, key) as nova:
        env = {
            "NOVA_HOME": str(tmp_path),
            "NOVA_API_URL": fleet.api_url,
            "NOVA_API_KEY": key,
            "NOVA_TELEGRAM__TOKEN": TOKEN,
            "NOVA_TELEGRAM__USERS": json.dumps([ANN, BEN]),
            "NOVA_TELEGRAM__BASE_URL": telegram.url,
            "NOVA_TELEGRAM__LEASE_TTL_S": "2",
            "NOVA_TELEMETRY__LOG_FORMAT": "json",
        }
        stage = Stage(telegram, nova, env, tmp_path)
        yield stage
        for process in stage.processes:
            process.kill()
        # Shown if the test fails.
        print(stage.logs())
        assert TOKEN not in stage.logs()


@pytest.fixture
def served(stage: Stage) -> Stage:
    """The stage, with one process that serves the bot."""
    stage.start()
    return stage


Script = Callable[..., str]
