"""Many messages in one request: each has an outcome of its own."""

from typing import Any

import pytest

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves


async def _send(api: Api, *items: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.http.post("/v1/runs/batch", json={"items": items})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


@proves("submit.batch")
async def test_each_message_is_accepted_or_refused_by_itself_in_order(api: Api, other_tenant: Tenant) -> None:
    thread_id = await api.thread()
    busy = await api.run(thread_id)
    outcomes = await _send(
        api,
        {"message": "a new thread"},
        {"message": "nobody", "agent_id": "nobody"},
        {"message": "on the thread", "thread_id": thread_id},
        {"message": "not now", "thread_id": thread_id, "on_busy": "reject"},
        {"message": [{"type": "image"}]},
        {"message": "later", "start_at": "2030-01-01T00:00:00Z"},
        {"message": "a third", "thread_id": thread_id},
    )
    assert [outcome["status"] for outcome in outcomes] == [202, 404, 202, 409, 422, 422, 202]
    assert [outcome["problem"] and outcome["problem"]["code"] for outcome in outcomes] == [
        *(None, "not_found", None, "thread_busy", "invalid_input", "invalid_input", None),
    ]
    runs = (await api.http.get("/v1/runs", params={"thread_id": thread_id})).json()["items"]
    places = {run["id"]: run["position"] for run in runs}
    assert [places[run_id] for run_id in (busy, outcomes[2]["run"]["id"], outcomes[6]["run"]["id"])] == [0, 1, 2]


@proves("submit.batch")
async def test_a_repeated_batch_creates_no_run_twice_also_together_with_a_single_message(
    api: Api, database: Database
) -> None:
    items = [{"message": f"m{n}", "idempotency_key": f"k{n}"} for n in range(12)]
    first = await _send(api, *items)
    again = await _send(api, *items, {"message": "m0", "idempotency_key": "k0"})
    assert [item["run"]["id"] for item in again] == [item["run"]["id"] for item in [*first, first[0]]]
    alone = await api.http.post("/v1/runs", json={"message": "m3"}, headers={"Idempotency-Key": "k3"})
    assert (alone.status_code, alone.json()["id"]) == (202, first[3]["run"]["id"])
    (other,) = await _send(api, {"message": "other words", "idempotency_key": "k3"})
    assert (other["status"], other["problem"]["code"]) == (409, "idempotency_mismatch")
    assert await database.fetchval("SELECT count(*) FROM runs") == 12


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ([], "items"),
        ([{"message": "x"}] * 101, "items"),
        ([{"message": "x"}, {"massage": "x"}], "items.1"),
        ([{"message": "x", "idempotency_key": "with space"}], "items.0.idempotency_key"),
    ],
)
async def test_a_batch_of_the_wrong_form_is_refused_before_anything_is_accepted(
    api: Api, items: list[dict[str, Any]], named: str
) -> None:
    answer = await api.http.post("/v1/runs/batch", json={"items": items})
    assert answer.status_code == 422
    assert any(error["field"].startswith(named) for error in answer.json()["errors"])
    assert await api.count("runs") == 0
