"""Submissions whose commit's reply is lost: the API finds out whether the run exists, or says that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.ledger import in_doubt
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

_FORMS = {
    "a message": ("/v1/runs", {}, {}, b"Said once"),
    "a message with a key": ("/v1/runs", {}, {"Idempotency-Key": "order-1"}, b"COMMIT"),
    "an interrupt": ("/v1/threads/{thread}/runs", {"on_busy": "interrupt"}, {}, b"COMMIT"),
    "a rejecting message": ("/v1/threads/{thread}/runs", {"on_busy": "reject"}, {}, b"COMMIT"),
    "a message to a thread": ("/v1/threads/{thread}/runs", {}, {}, b"Said once"),
    "a message for later": ("/v1/runs", {"start_at": "2026-12-24T18:00:00Z"}, {}, b"Said once"),
}
"""Path, fields, headers, and the bytes of the request to the database whose answer is lost."""


@pytest.fixture
async def link(database_url: str, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """The link between the API and the database."""
    async with FaultProxy.to_postgres(database_url, tmp_path) as link:
        yield link


@pytest.fixture
async def api(settings: Settings, link: FaultProxy, serve: Serve) -> Api:
    """An API behind that link."""
    return await serve(settings.model_copy(update={"database_url": SecretStr(link.url)}))


async def _runs(database: Database) -> list[str]:
    return [row["id"] for row in await database.fetch("SELECT id FROM runs")]


@pytest.mark.parametrize("form", _FORMS)
@proves("unavailable.finds-out")
async def test_a_submission_whose_commit_is_not_confirmed_is_accepted_once(
    form: str, api: Api, link: FaultProxy, database: Database
) -> None:
    path, fields, headers, lost = _FORMS[form]
    thread = await api.thread()
    link.loses_answer_to = lost
    answer = await api.http.post(path.format(thread=thread), json={"message": "Said once", **fields}, headers=headers)
    assert answer.status_code == 202, answer.text
    assert link.loses_answer_to is None
    assert await _runs(database) == [answer.json()["id"]]
    assert "idempotent-replayed" not in answer.headers


@proves("unavailable.says-what", "unavailable.finds-out")
async def test_what_cannot_be_found_out_may_have_been_accepted_and_is_repeated_with_its_key(
    api: Api, link: FaultProxy, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_doubt, "PATIENCE_S", 0.3)
    message, key = {"message": "Said once"}, {"Idempotency-Key": "order-1"}
    # The next request needs no new connection before it commits.
    assert (await api.http.post("/v1/runs", json=message, headers={"Idempotency-Key": "order-0"})).status_code == 202
    await database.execute("DELETE FROM runs")
    link.loses_answer_to, link.refuses = b"COMMIT", True
    answer = await api.http.post("/v1/runs", json=message, headers=key)
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    assert problem["context"]["may_be_written"] is True
    assert "may have been accepted. Repeat the request with the same Idempotency-Key" in problem["detail"]
    (run_id,) = await _runs(database)
    assert problem["context"]["run_id"] == run_id

    refused = await api.http.post("/v1/runs", json=message, headers=key)
    assert refused.json()["context"]["may_be_written"] is False
    assert "Nothing was written; try again" in refused.json()["detail"]

    link.heal()
    again = await api.http.post("/v1/runs", json=message, headers=key)
    assert (again.status_code, again.json()["id"]) == (202, run_id)
    assert await _runs(database) == [run_id]


@proves("unavailable.says-what")
async def test_a_run_that_cannot_be_read_once_it_is_accepted_is_answered_as_accepted(
    api: Api, link: FaultProxy, database: Database
) -> None:
    async def post() -> httpx2.Response:
        return await api.http.post("/v1/runs/wait", json={"message": "Said once"}, params={"timeout_s": 1})

    asked = asyncio.create_task(post())
    (run_id,) = await until(lambda: _runs(database))
    link.refuses = True
    link.reset()
    answer = await asked
    assert (answer.status_code, answer.json()["id"]) == (202, run_id), answer.text


@proves("unavailable.says-what")
async def test_a_repeated_submission_whose_run_cannot_be_followed_names_the_run(
    api: Api, link: FaultProxy, database: Database
) -> None:
    async def post() -> httpx2.Response:
        key = {"Idempotency-Key": "order-1"}
        return await api.http.post("/v1/runs/stream", json={"message": "Said once"}, headers=key)

    first = asyncio.create_task(post())
    (run_id,) = await until(lambda: _runs(database))
    # The repetition needs no new connection before it reads the run.
    link.loses_answer_to, link.refuses = b"final_event_id, merged_into", True
    answer = await post()
    assert link.loses_answer_to is None
    assert answer.status_code == 503, answer.text
    assert answer.json()["code"] == "outcome_unknown"
    context = answer.json()["context"]
    assert (context["may_be_written"], context["run_id"]) == (True, run_id)
    assert context["look_up"] == f"/v1/runs/{run_id}"
    first.cancel()
