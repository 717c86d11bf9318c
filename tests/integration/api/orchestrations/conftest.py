"""An API, and workers that play the agents of its orchestrations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.support.harness.trees import script
from tests.support.harness.workers import Harness

PATH = "/v1/orchestrations"


class Orchestrated:
    """Starts orchestrations over HTTP; their agents play scripts in this process."""

    def __init__(self, api: Api, harness: Harness) -> None:
        self.api = api
        self.harness = harness

    async def start(self, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Start an orchestration whose master plays items, and return its view."""
        body = {"agent_id": "scripted", "task": script(*items), **fields}
        answer = await self.api.http.post(PATH, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def settle(self) -> None:
        """Let workers play queued runs until there is none."""
        rows = await self.harness.database.fetch("SELECT id, thread_id, queue FROM runs WHERE status = 'queued'")
        self.harness.bells.ring_runs([Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows])
        while len(self.harness.workers) < 1:
            self.harness.worker()
        await self.harness.settle(*self.harness.workers)

    async def run(self, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Start an orchestration, let it run until nothing is to be done, and return its view."""
        view = await self.start(*items, **fields)
        await self.settle()
        return await self.get(view["id"])

    async def get(self, orchestration_id: str, part: str = "") -> dict[str, Any]:
        """Return an orchestration, or a part of it such as ``/tree``."""
        answer = await self.api.http.get(f"{PATH}/{orchestration_id}{part}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, orchestration_id: str, part: str, **body: Any) -> dict[str, Any]:
        """Change an orchestration, and return its view."""
        answer = await self.api.http.post(f"{PATH}/{orchestration_id}{part}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def orchestrated(
    api: Api, tenant: Tenant, database: Database, redis: Redis, settings: Settings
) -> AsyncIterator[Orchestrated]:
    """Orchestrations of the tenant, over HTTP."""
    harness = Harness(database, redis, settings)
    harness.tenant_id = tenant.id
    await harness.open()
    yield Orchestrated(api, harness)
    await harness.close()
