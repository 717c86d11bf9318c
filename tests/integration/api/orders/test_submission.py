"""Orders over HTTP: waiting and asynchronous submission, results, reviews, trails."""

from __future__ import annotations

import asyncio

from tests.integration.api.conftest import Api
from tests.integration.api.orders.conftest import order_of
from tests.support.harness.orders import AnsweringEngine, proposal


async def test_an_order_gets_its_result_in_the_answer(api: Api, order_secret: str, engine: AnsweringEngine) -> None:
    answer = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert (result["status"], result["stopReason"], result["customerSafe"]) == ("succeeded", "ok", True)
    assert result["artifacts"][0]["payload"]["value"] == "A better headline"
    assert not result["extensions"]["meta"]["cached"]
    assert "costBreakdown" not in result["extensions"]
    again = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    assert again.json()["traceId"] == result["traceId"]
    assert again.json()["extensions"]["meta"]["cached"]
    assert len(engine.calls) == 1
    internal = await api.http.get(f"/v1/work-orders/{result['traceId']}/internal")
    assert internal.json()["extensions"]["costBreakdown"]["byModel"] == {"craft": {"calls": 1, "costUsd": 0.01}}


async def test_equal_orders_at_once_share_one_execution_and_all_wait_for_it(
    api: Api, order_secret: str, engine: AnsweringEngine
) -> None:
    order = await order_of(api, order_secret)
    answers = await asyncio.gather(*(api.http.post("/v1/work-orders", json=order) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["traceId"] for answer in answers}) == 1
    assert sum(not answer.json()["extensions"]["meta"]["cached"] for answer in answers) == 1
    assert len(engine.calls) == 1


async def test_an_equal_order_with_a_key_of_the_replaced_secret_is_not_executed_again(
    api: Api, order_secret: str, engine: AnsweringEngine
) -> None:
    before = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    newer = (await api.http.post("/v1/work-order-secrets", json={})).json()["secret"]
    for secret in (newer, order_secret):
        again = await api.http.post("/v1/work-orders", json=await order_of(api, secret))
        assert (again.json()["traceId"], again.json()["extensions"]["meta"]["cached"]) == (
            before.json()["traceId"],
            True,
        )
    orders = [await order_of(api, secret, inputs={"at": "once"}) for secret in (order_secret, newer)]
    answers = await asyncio.gather(*(api.http.post("/v1/work-orders", json=order) for order in orders * 5))
    assert len({answer.json()["traceId"] for answer in answers}) == 1
    assert len(engine.calls) == 2


async def test_a_result_outlives_the_secrets_that_were_replaced_since(
    api: Api, order_secret: str, engine: AnsweringEngine
) -> None:
    before = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    for _ in range(2):
        made = await api.http.post("/v1/work-order-secrets", json={"previous_valid_hours": 0})
        again = await api.http.post("/v1/work-orders", json=await order_of(api, made.json()["secret"]))
        assert again.json()["traceId"] == before.json()["traceId"]
    refused = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    assert refused.status_code == 422
    assert len(engine.calls) == 1


async def test_an_asynchronous_order_is_answered_before_it_ends(api: Api, order_secret: str) -> None:
    order = await order_of(api, order_secret)
    answer = await api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    result = answer.json()
    assert (result["status"], result["stopReason"], result["artifacts"]) == ("in_progress", "in_progress", [])
    present = await api.http.get(f"/v1/work-orders/{result['traceId']}")
    assert (present.status_code, present.json()) == (202, result)
    assert answer.headers["Location"] == f"/v1/work-orders/{result['traceId']}"
    assert answer.headers["Preference-Applied"] == "respond-async"


async def test_a_client_says_how_long_it_waits(api: Api, order_secret: str, engine: AnsweringEngine) -> None:
    held = asyncio.Event()
    engine.before = held.wait
    order = await order_of(api, order_secret)
    # Of a preference that is there twice the first counts, in whichever header it is.
    headers = [("Prefer", 'respond-async;x="a, b" , wait=0'), ("Prefer", "handling=lenient, wait=20")]
    answer = await api.http.post("/v1/work-orders", json=order, headers=headers)
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (202, "respond-async, wait=0")
    path = answer.headers["Location"]
    waiting = await api.http.get(f"{path}/wait", params={"timeout_s": 0.1})
    assert (waiting.status_code, waiting.json()["stopReason"]) == (202, "in_progress")
    ended = asyncio.create_task(api.http.get(f"{path}/wait"))
    again = asyncio.create_task(
        api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async, wait=15"})
    )
    held.set()
    assert [(await each).json()["stopReason"] for each in (ended, again)] == ["ok", "ok"]
    # What has ended is answered at once, without any preference.
    known = await api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async"})
    assert (known.status_code, known.headers.get("Preference-Applied")) == (200, None)


async def test_an_order_is_canceled_with_its_runs_and_executed_anew_when_it_comes_again(
    api: Api, order_secret: str, engine: AnsweringEngine
) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await released.wait()

    engine.before = hang
    order = await order_of(api, order_secret)
    shared = [asyncio.create_task(api.http.post("/v1/work-orders", json=order)) for _ in range(2)]
    await asyncio.wait_for(begun.wait(), 20)
    (running,) = (await api.http.get("/v1/work-orders", params={"state": "running"})).json()["items"]
    path = f"/v1/work-orders/{running['trace_id']}"
    canceled = await api.http.post(f"{path}/cancel")
    result = canceled.json()
    assert (canceled.status_code, result["status"], result["stopReason"], result["needsHuman"]) == (
        *(200, "failed", "needs_human"),
        False,
    )
    assert result["extensions"]["message"] == "The order was canceled."
    assert {(await each).json()["traceId"] for each in shared} == {running["trace_id"]}
    assert (await api.http.post(f"{path}/cancel")).json() == result
    runs = (await api.http.get("/v1/runs", params={"agent_id": "work-orders"})).json()["items"]
    assert {run["status"] for run in runs} <= {"running", "canceled"}
    customer = (await api.http.get(f"{path}/trail")).json()["items"]
    assert customer[-1]["data"]["reviewed"] == "canceled"
    engine.before = None
    # What the call answers now is too late.
    released.set()
    again = await api.http.post("/v1/work-orders", json=order)
    assert (again.json()["stopReason"], again.json()["traceId"] == running["trace_id"]) == ("ok", False)
    assert (await api.http.post(f"/v1/work-orders/{again.json()['traceId']}/cancel")).status_code == 409
    assert (await api.http.post("/v1/work-orders/trc_01JZ0000000000000000000000/cancel")).status_code == 404


async def test_a_waiting_request_gets_the_state_when_the_time_of_the_order_is_over(api: Api, order_secret: str) -> None:
    order = await order_of(api, order_secret, constraints={"timeoutMs": 100})
    answer = await api.http.post("/v1/work-orders", json=order)
    assert (answer.status_code, answer.json()["status"]) == (202, "in_progress")


async def test_a_person_decides_on_an_unsure_proposal(api: Api, order_secret: str, engine: AnsweringEngine) -> None:
    engine.answers = {"craft": proposal("Unsure", 0.2)}
    answer = await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))
    assert answer.status_code == 202
    waiting = answer.json()
    assert (waiting["status"], waiting["stopReason"], waiting["needsHuman"]) == ("in_progress", "needs_human", True)
    path = f"/v1/work-orders/{waiting['traceId']}"
    assert waiting["artifacts"]
    # A key that may not decide sees no drafts, wherever it looks.
    blind = {"scopes": ["runs", "agents"], "name": "blind"}
    key = (await api.http.post("/v1/keys", json=blind)).json()["key"]
    async with api.client(key) as http:
        for read in (path, f"{path}/internal", f"{path}/wait"):
            assert "Unsure" not in (await http.get(read)).text
        again = await http.post("/v1/work-orders", json=await order_of(api, order_secret))
        assert (again.json()["traceId"], again.json()["artifacts"]) == (waiting["traceId"], [])
    (listed,) = (await api.http.get("/v1/work-orders", params={"state": "review"})).json()["items"]
    assert (listed["trace_id"], listed["policy_id"]) == (waiting["traceId"], "test_policy")
    decided = await api.http.post(f"{path}/review", json={"verdict": "approve"})
    assert (decided.status_code, decided.json()["stopReason"]) == (200, "ok")
    assert (await api.http.post(f"{path}/review", json={"verdict": "reject"})).status_code == 409


async def test_each_trail_has_its_readers(api: Api, order_secret: str, engine: AnsweringEngine) -> None:
    result = (await api.http.post("/v1/work-orders", json=await order_of(api, order_secret))).json()
    path = f"/v1/work-orders/{result['traceId']}"
    customer = (await api.http.get(f"{path}/trail")).json()["items"]
    assert [entry["event"] for entry in customer] == ["accepted", "ended"]
    internal = (await api.http.get(f"{path}/internal-trail")).json()["items"]
    assert [entry["event"] for entry in internal] == ["accepted", "part_ended", "ended"]
    assert internal[1]["data"]["model"] == "craft"
