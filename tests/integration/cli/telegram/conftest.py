"""A Bot API server of ours, and processes of the channel on the fleet."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import AgentCreate, RunView
from nova_workers.ledger.database import PostgresDatabase
from tests.support.harness.api_proxy import ApiProxy, api_proxy
from tests.support.processes.fleet import Fleet, FleetProcess, add_api_key
from tests.support.servers.telegram_server import TOKEN, TelegramServer, telegram_server
from tests.support.waiting import until

_EXPIRE = "UPDATE leases SET expires_at = now() WHERE tenant_id = :tenant_id"

ANN, BEN, MALLORY = 7, 8, 666
soon = partial(until, timeout_s=60.0)


@dataclass
class Stage:
    """A Telegram with one bot, a tenant of its own, and the channel's processes.

    Attributes:
        api: What the channel reaches the API through.
        env: Variables of the channel's processes.
        processes: All of them, in the order of their starts.
    """

    telegram: TelegramServer
    nova: NovaClient
    api: ApiProxy
    env: dict[str, str]
    tenant_id: str
    database_url: str
    folder: Path
    processes: list[FleetProcess] = field(default_factory=list[FleetProcess])

    def start(self, **env: str) -> FleetProcess:
        """Start one process of the channel."""
        command = [sys.executable, "-m", "nova_workers.channels", "telegram"]
        process = FleetProcess("telegram", command, {**self.env, **env}, self._log())
        self.processes.append(process)
        return process

    def start_by_command(self) -> FleetProcess:
        """Start one process of the channel as people do, which takes seconds."""
        command = [sys.executable, "-m", "nova_workers.cli", "channels", "telegram"]
        process = FleetProcess("telegram", command, self.env, self._log(), preloaded=False)
        self.processes.append(process)
        return process

    def kills(self, call: str, *, side: str = "after") -> None:
        """Kill the newest process at its next call of this name, of Telegram or the API, before or after the effect."""
        process = self.processes[-1]

        async def kill(called: str, *_: object) -> None:
            if called == call:
                process.kill()

        if " " in call:
            self.api.after = kill
        else:
            setattr(self.telegram, side, kill)

    async def restart(self, **env: str) -> None:
        """Start another process when the newest one was killed, with its lease expired."""
        await soon(lambda: self.processes[-1].has_ended)
        self.telegram.before = self.telegram.after = self.api.after = None
        await self.execute(_EXPIRE)
        self.start(**env)

    async def execute(self, statement: str, **values: str) -> None:
        """Execute a statement for the tenant."""
        database = PostgresDatabase(self.database_url, pool_size=1)
        try:
            await database.execute(statement, tenant_id=self.tenant_id, **values)
        finally:
            await database.close()

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

    def _log(self) -> Path:
        return self.folder / f"telegram-{len(self.processes)}.log"


@pytest.fixture
async def stage(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Stage]:
    database_url = fleet.env["NOVA_DATABASE_URL"]
    key, tenant_id = await add_api_key(database_url)
    async with telegram_server() as telegram, NovaClient(fleet.api_url, key) as nova, api_proxy(fleet.api_url) as api:
        env = {
            "NOVA_HOME": str(tmp_path),
            "NOVA_API_URL": api.url,
            "NOVA_API_KEY": key,
            "NOVA_TELEGRAM__TOKEN": TOKEN,
            "NOVA_TELEGRAM__USERS": json.dumps([ANN, BEN]),
            "NOVA_TELEGRAM__BASE_URL": telegram.url,
            "NOVA_TELEMETRY__LOG_FORMAT": "json",
        }
        stage = Stage(telegram, nova, api, env, tenant_id, database_url, tmp_path)
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
