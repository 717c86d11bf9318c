"""A worker with the engines of bootstrap and a model server whose answers a test gives."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.engines import build_engines
from nova_workers.bootstrap.shell.commands import find_shell
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.streams.rules.wire import FIELD
from nova_workers.ledger.database import Database
from tests.support.harness.tool_server import tool_server
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Reply, Stream

KEY = f"test:{b64encode(os.urandom(32)).decode()}"


def says(*pieces: str) -> Stream:
    """Return a model's answer, in pieces."""
    return Stream((Part("text", list(pieces)),))


def calls(*tools: tuple[str, dict[str, Any]], narration: tuple[str, ...] = ()) -> Stream:
    """Return a model's response that calls tools."""
    text = (Part("text", list(narration)),) if narration else ()
    return Stream((*text, *(Part("tool", (f"toolu_{name}", name, given)) for name, given in tools)))


class Stage:
    """One worker, one tenant, one model server."""

    def __init__(self, harness: Harness, model: ModelServer, secrets: Secrets) -> None:
        self.harness = harness
        self.model = model
        self.secrets = secrets

    async def agent(self, agent_id: str, **spec: Any) -> None:
        """Create an agent, checked as by the API."""
        given = {"name": agent_id, "engine": "anthropic", **spec}
        registry = default_registry(self.harness.database, self.harness.settings, SystemClock(), serve=tool_server())
        registry.validate(AgentSpec.model_validate(given))
        await self.harness.add_agent(agent_id, given)

    async def run(self, text: str, *replies: Reply, agent_id: str, thread_id: str | None = None) -> RunView:
        """Send a message, let the model answer with `replies`, and return the ended run."""
        self.model.requests.clear()
        self.model.reply(*replies)
        fields = {} if thread_id else {"agent_id": agent_id}
        accepted = await self.harness.submit(text, thread_id, **fields)
        worker = self.harness.worker(keeper=True)
        await self.harness.settle(worker)
        await worker.publisher.drain(5)
        return await self.view(accepted.run_id)

    async def view(self, run_id: str) -> RunView:
        """Return a run."""
        async with self.harness.database.connection() as connection:
            return await get_run(connection, self.harness.tenant_id, run_id)

    def asked(self, number: int) -> str:
        """Return a request to the model, as text."""
        return json.dumps(self.model.requests[number], ensure_ascii=False)

    async def dump(self) -> str:
        """Return every row of every table as text, and all that Redis holds."""
        tables = await self.harness.database.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
        )
        parts: list[str] = []
        for table in tables:
            rows = await self.harness.database.fetch(f'SELECT t::text AS row FROM "{table["tablename"]}" t')
            parts += [f"{table['tablename']}: {row['row']}" for row in rows]
        return "\n".join([*parts, *await self.events()])

    async def events(self) -> list[str]:
        """Return what Redis holds, key by key."""
        redis: Any = self.harness.redis
        held: list[str] = []
        async for key in redis.scan_iter():
            kind = (await redis.type(key)).decode()
            if kind == "stream":
                held += [fields[FIELD].decode() for _, fields in await redis.xrange(key)]
            elif kind == "string":
                held.append(repr(await redis.get(key)))
            else:
                held.append(repr(await redis.dump(key)))
        return held

    async def tokens(self) -> str:
        """Return the text that followers saw, of all runs."""
        events = [
            event for entry in await self.events() if entry.startswith("{") for _, event in json.loads(entry)["e"]
        ]
        return "".join(event["text"] for event in events if event["type"] == "token")


@asynccontextmanager
async def open_stage(
    database: Database, redis: Redis, settings: Settings, model: ModelServer, **tools: Any
) -> AsyncGenerator[Stage]:
    """Build a stage, with settings of the tools."""
    given = {
        "secrets": {"keys": [KEY]},
        "tools": tools,
        "model": {"api_key": "k", "base_url": model.url, "max_retries": 0},
    }
    settings = Settings.model_validate({**settings.model_dump(), **given})
    harness = Harness(database, redis, settings)
    engines = build_engines(settings, redis, SystemClock(), Metrics(CollectorRegistry()), find_shell(settings))
    harness.engines.update(engines)
    await harness.open()
    try:
        yield Stage(harness, model, Secrets(database, Vault.of(settings.secrets.source)))
    finally:
        await harness.close()
        for engine in engines.values():
            await engine.close()
