"""Start and wait: woken by the end of an orchestration or by a question, bounded, and without effect on it."""

from __future__ import annotations

import asyncio
from typing import Any

from nova_workers.base.config import Settings
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.orchestrations import OrchestrationContinue
from tests.integration.api.conftest import Serve
from tests.integration.api.orchestrations.conftest import PATH, Orchestrated
from tests.support.harness.trees import call, complete, script, spawn
from tests.support.waiting import until


async def _is_followed(orchestrated: Orchestrated) -> None:
    await until(lambda: orchestrated.api.state.services.hub.open_feeds == 1)


def _body(*items: dict[str, Any]) -> dict[str, Any]:
    return {"agent_id": "scripted", "task": script(*items)}


async def test_the_answer_is_the_orchestration_once_it_has_ended(orchestrated: Orchestrated) -> None:
    body = _body(spawn(complete("It is in parse().")), complete("Found it."))
    waiting = asyncio.create_task(orchestrated.api.http.post(f"{PATH}/wait", json=body))
    await _is_followed(orchestrated)
    await orchestrated.settle()
    answer = await waiting
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["summary"]) == ("COMPLETED", "Found it.")
    assert answer.headers["location"] == f"{PATH}/{answer.json()['id']}"


async def test_an_orchestration_that_takes_too_long_is_returned_as_it_stands_and_continues(
    orchestrated: Orchestrated,
) -> None:
    http, body, headers = orchestrated.api.http, _body(complete("late")), {"Idempotency-Key": "w1"}
    answer = await http.post(f"{PATH}/wait", json=body, params={"timeout_s": 0.05}, headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (202, "PENDING")
    await orchestrated.settle()
    again = await http.get(f"{PATH}/{answer.json()['id']}/wait")
    assert (again.status_code, again.json()["summary"]) == (200, "late")
    replayed = await http.post(f"{PATH}/wait", json=body, headers=headers)
    assert (replayed.status_code, replayed.json()["id"]) == (200, answer.json()["id"])
    assert replayed.headers["idempotent-replayed"] == "true"


async def test_a_wait_ends_when_an_agent_asks_a_person(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(spawn(call("ask_user", question="Which file?")), complete("done"))
    waiting = asyncio.create_task(orchestrated.api.http.get(f"{PATH}/{view['id']}/wait"))
    await _is_followed(orchestrated)
    await orchestrated.settle()
    answer = await waiting
    assert (answer.status_code, answer.json()["state"]) == (202, "WAITING_FOR_CHILD")
    (wait,) = (await orchestrated.get(view["id"], "/tree"))["agents"][1]["waits"]
    await orchestrated.api.http.post(f"/v1/runs/{wait['run_id']}/answers", json={"text": "parse.py"})
    await orchestrated.settle()
    assert (await orchestrated.api.http.get(f"{PATH}/{view['id']}/wait")).status_code == 200


async def test_a_continuation_is_awaited_to_its_own_end(orchestrated: Orchestrated) -> None:
    view = await orchestrated.run(complete("first"))
    follow_up = OrchestrationContinue(task=script(complete("second")))
    async with NovaClient(orchestrated.api.url, orchestrated.api.tenant.key) as nova:
        waiting = asyncio.create_task(nova.orchestrations.continue_and_wait(view["id"], follow_up))
        await _is_followed(orchestrated)
        await orchestrated.settle()
        assert (await waiting).summary == "second"


async def test_a_waiter_is_answered_though_the_end_was_never_pushed(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(complete("silent"))
    waiting = asyncio.create_task(orchestrated.api.http.get(f"{PATH}/{view['id']}/wait"))
    await _is_followed(orchestrated)
    database = orchestrated.harness.database
    await database.execute("UPDATE orchestrations SET finished_at = now() WHERE id = :id", id=view["id"])
    async with asyncio.timeout(60):
        assert (await waiting).status_code == 200


async def test_a_waiter_that_disconnects_does_not_stop_the_orchestration(orchestrated: Orchestrated) -> None:
    view = await orchestrated.start(complete("done"))
    waiting = asyncio.create_task(orchestrated.api.http.get(f"{PATH}/{view['id']}/wait"))
    await _is_followed(orchestrated)
    waiting.cancel()
    await until(lambda: orchestrated.api.state.services.hub.open_feeds == 0)
    await orchestrated.settle()
    assert (await orchestrated.get(view["id"]))["state"] == "COMPLETED"


async def test_waiting_is_bounded_by_the_server_s_limit(
    orchestrated: Orchestrated, serve: Serve, settings: Settings
) -> None:
    assert orchestrated.harness.tenant_id
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"wait_timeout_s": 0.05})}))
    answer = await api.http.post(f"{PATH}/wait", json=_body(complete("x")), params={"timeout_s": 60})
    assert answer.status_code == 202
