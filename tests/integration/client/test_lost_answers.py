"""Requests that start something and whose answer is lost: each is repeated with the same key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from nova_workers.base.errors import Conflict, OutcomeUnknown, Unavailable
from nova_workers.client import NovaClient, Retry
from nova_workers.client.retry import Attempts
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.http.orchestrations import OrchestrationContinue
from nova_workers.contracts.http.webhooks import WebhookCreate
from nova_workers.contracts.http.wire import RunBatch, RunBatchItem, RunBatchOutcome, RunBatchView, StatelessRunCreate
from tests.support.servers.api_stub import ApiStub, api_stub, run_view, says, streams

IN_DOUBT = Problem(
    title="Unavailable",
    status=503,
    detail="It may have been accepted.",
    code="outcome_unknown",
    context={"may_be_written": True},
)
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


def test_a_refused_connection_ends_a_request_unless_an_earlier_attempt_is_in_doubt() -> None:
    refused = Unavailable("No fleet answers.")
    refused.__cause__ = httpx2.ConnectError("refused")
    with pytest.raises(Unavailable, match="No fleet answers") as caught:
        Attempts(PATIENT, "key-1", repeatable=True, is_once=True).fail(refused)
    assert "idempotency_key" not in caught.value.fields

    attempts = Attempts(PATIENT, "key-1", repeatable=True, is_once=True)
    attempts.fail(OutcomeUnknown("The connection broke.", may_be_written=True))
    for _ in range(PATIENT.attempts - 2):
        attempts.fail(refused)
    with pytest.raises(Unavailable, match="The connection broke") as caught:
        attempts.fail(refused)
    assert (caught.value.fields["may_be_written"], caught.value.fields["idempotency_key"]) == (True, "key-1")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/stream"])
async def test_a_submission_that_may_have_been_accepted_stays_so_after_later_failures(
    path: str, server: ApiStub, nova: NovaClient
) -> None:
    server.on("POST", path, says(IN_DOUBT, 503), says(UNAVAILABLE, 503))
    message = StatelessRunCreate(message="Hello")
    with pytest.raises(Unavailable, match="may have been accepted") as caught:
        await (anext(nova.runs.stream(message)) if path.endswith("stream") else nova.runs.create(message))
    keys = [headers["idempotency-key"] for headers in server.asked("POST", path)]
    assert len(keys) == PATIENT.attempts
    assert len(set(keys)) == 1
    assert caught.value.fields["idempotency_key"] == keys[0]
    assert keys[0] in str(caught.value)


async def test_a_streamed_submission_is_repeated_with_its_key(server: ApiStub, nova: NovaClient) -> None:
    refused = Problem(title="Conflict", status=409, detail="Busy.", code="conflict")
    server.on("POST", "/v1/runs/stream", says(IN_DOUBT, 503), says(refused, 409))
    with pytest.raises(Conflict):
        await anext(nova.runs.stream(StatelessRunCreate(message="Hello")))
    first, second = [headers["idempotency-key"] for headers in server.asked("POST", "/v1/runs/stream")]
    assert first == second


async def test_a_connection_that_breaks_under_a_change_leaves_it_open(nova: NovaClient, server: ApiStub) -> None:
    server.on("POST", "/v1/webhooks", streams("half", cut=True))
    with pytest.raises(Unavailable, match="may have been accepted: look before") as caught:
        await nova.webhooks.create(WebhookCreate(url="https://example.com/hook"))
    assert caught.value.fields["may_be_written"] is True


async def test_a_request_without_a_key_is_not_repeated(server: ApiStub, nova: NovaClient) -> None:
    server.on("POST", "/v1/webhooks", says(UNAVAILABLE, 503))
    with pytest.raises(Unavailable):
        await nova.webhooks.create(WebhookCreate(url="https://example.com/hook"))
    assert len(server.requests) == 1


async def test_a_deletion_that_may_have_happened_is_not_repeated(server: ApiStub, nova: NovaClient) -> None:
    server.on("DELETE", "/v1/threads/thr_1", says(IN_DOUBT, 503))
    with pytest.raises(OutcomeUnknown):
        await nova.threads.delete("thr_1")
    assert len(server.requests) == 1
