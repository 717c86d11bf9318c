"""An API with a master key, so that a tenant may have a secret of work orders."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.orders import AiWorkOrderV1, derive_key_hash
from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.support.data.work_orders import example_order
from tests.support.harness.orders import AnsweringEngine, policy
from tests.support.harness.workers import Harness

_QUEUED = "SELECT id, thread_id, queue FROM runs WHERE status = 'queued'"
MASTER_KEY = f"first:{b64encode(os.urandom(32)).decode()}"


@pytest.fixture
async def api(serve: Serve, settings: Settings) -> Api:
    return await serve(Settings.model_validate({**settings.model_dump(), "secrets": {"keys": [MASTER_KEY]}}))


@pytest.fixture
async def order_secret(api: Api) -> str:
    """The secret of the tenant's orders."""
    made = await api.http.post("/v1/work-order-secrets", json={})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


@pytest.fixture
async def engine(api: Api, database: Database, redis: Redis) -> AsyncIterator[AnsweringEngine]:
    """The model of a worker that executes what is queued."""
    async with answering_worker(api, database, redis) as engine:
        yield engine


@asynccontextmanager
async def answering_worker(api: Api, database: Database, redis: Redis) -> AsyncGenerator[AnsweringEngine]:
    """Execute what is queued within the block; yields the model."""
    harness = Harness(database, redis, api.state.services.settings)
    answering = AnsweringEngine({})
    harness.engines["scripted"] = answering
    worker = harness.worker()

    async def work() -> None:
        while True:
            for row in await database.fetch(_QUEUED):
                await worker.executor.answer(Doorbell(row["id"], row["thread_id"], row["queue"]))
            await asyncio.sleep(0.01)  # until something is queued

    working = asyncio.create_task(work())
    yield answering
    await stop_tasks([working])
    await harness.close()


def keyed(order: dict[str, Any], secret: str) -> dict[str, Any]:
    """Return an order with the key that belongs to it."""
    key_hash = derive_key_hash(AiWorkOrderV1.from_wire(order), secret)
    return order | {"idempotency": order["idempotency"] | {"keyHash": key_hash}}


def valid_order(tenant_id: str, secret: str, policy_id: str = "butler_basic", **changes: Any) -> dict[str, Any]:
    """Return an order that is admitted."""
    return keyed(example_order(policy_id) | {"tenant": tenant_id} | changes, secret)


async def order_of(
    api: Api, secret: str, *, of_policy: Mapping[str, Any] | None = None, **changes: object
) -> dict[str, object]:
    """Return an order of a policy whose proposals go to a person if the model is not sure."""
    document = policy(escalation={"belowConfidence": 0.5}, **(of_policy or {})).to_wire()
    stored = await api.http.put("/v1/work-order-policies/test_policy", json={"document": document})
    assert stored.status_code == 200, stored.text
    order = {
        "version": "v1",
        "tenant": api.tenant.id,
        "scope": "tests",
        "policyId": "test_policy",
        "inputs": {"headline": "An old one"},
        "constraints": {"timeoutMs": 20_000},
        "idempotency": {"keyHash": "to be derived".replace(" ", "-")},
        "trace": {"jobId": "job-1"},
        "audit": {"customerTrailOn": True, "internalTrailOn": True},
        **changes,
    }
    return keyed(order, secret)
