"""Requests that start something and whose answer is lost: each is repeated with the same key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from nova_workers.client import NovaClient, Retry
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.http.orchestrations import OrchestrationContinue
from nova_workers.contracts.http.wire import RunBatch, RunBatchItem, RunBatchOutcome, RunBatchView
from nova_workers.errors import Conflict, Unavailable
from tests.support.servers.api_stub import ApiStub, api_stub, run_view, says

UNAVAILABLE = Problem(title="Unavailable", status=503, detail="Try again.", code="unavailable")
PATIENT = Retry(attempts=4, base_s=0.001, max_s=0.002)


@pytest.fixture
async def server() -> AsyncIterator[ApiStub]:
    async with api_stub() as server:
        yield server


@pytest.fixture
async def nova(server: ApiStub) -> AsyncIterator[NovaClient]:
    async with NovaClient(server.url, "nova_key", retry=PATIENT) as nova:
        yield nova


async def test_a_batch_is_repeated_with_a_key_for_each_message(server: ApiStub, nova: NovaClient) -> None:
    view = RunBatchView(items=[RunBatchOutcome(status=202, run=run_view())] * 2)
    server.on("POST", "/v1/runs/batch", says(UNAVAILABLE, 503), says(view))
    await nova.runs.create_many(
        RunBatch(items=[RunBatchItem(message="One", idempotency_key="job-1"), RunBatchItem(message="Two")])
    )
    first, second = [json.loads(body) for _, _, _, body in server.requests]
    keys = [item["idempotency_key"] for item in first["items"]]
    assert first == second
    assert keys[0] == "job-1"
    assert keys[1] not in {None, "job-1"}


async def test_a_continuation_is_repeated_with_its_key(server: ApiStub, nova: NovaClient) -> None:
    # The second answer is an error of another kind: it ends the call.
    refused = Problem(title="Conflict", status=409, detail="It works.", code="conflict")
    for path, call in (
        ("continue", nova.orchestrations.continue_),
        ("continue/wait", nova.orchestrations.continue_and_wait),
    ):
        asked = f"/v1/orchestrations/orc_1/{path}"
        server.on("POST", asked, says(UNAVAILABLE, 503), says(refused, 409))
        with pytest.raises(Conflict):
            await call("orc_1", OrchestrationContinue(task="More."))
        first, second = [headers["idempotency-key"] for headers in server.asked("POST", asked)]
        assert first == second


async def test_a_request_without_a_key_is_not_repeated(server: ApiStub, nova: NovaClient) -> None:
    server.on("POST", "/v1/triggers/trg_1/fire", says(UNAVAILABLE, 503))
    with pytest.raises(Unavailable):
        await nova.triggers.fire("trg_1")
    assert len(server.requests) == 1
