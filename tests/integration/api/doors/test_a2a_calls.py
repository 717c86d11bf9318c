"""The capability `a2a` against the A2A door of this fleet."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.capabilities.tool_caller import ToolCaller
from tests.requirements import proves
from tests.support.waiting import until

_CARD = "/a2a/nova/.well-known/agent-card.json"


def caller_of(api: Api, database: Database, *, call_id: str = "toolu_1", key: str | None = None) -> ToolCaller:
    """Return a run of an agent that may ask the fleet's agent `nova` as one elsewhere."""
    settings = Settings()
    permitted = settings.tools.model_copy(update={"mcp_allow_hosts": (urlsplit(api.url).netloc,)})
    headers = {"Authorization": f"Bearer {key or api.tenant.key}"}
    agents = {"nova": {"url": f"{api.url}{_CARD}", "headers": headers}}
    return ToolCaller(
        database,
        api.tenant.id,
        settings=settings.model_copy(update={"tools": permitted}),
        context={"call_id": call_id},
        capabilities={"a2a": {"config": {"agents": agents}}},
    )


async def sent_run(api: Api) -> tuple[str, str]:
    """Return the run, and the thread, of the message that a call sent."""

    async def found() -> list[dict[str, str]]:
        return (await api.http.get("/v1/runs")).json()["items"]

    runs: list[dict[str, str]] = await until(found)
    [run] = runs
    return run["id"], run["thread_id"]


@proves("capabilities.a2a")
@pytest.mark.parametrize("noted", [True, False], ids=["lost after the answer", "lost before it"])
async def test_a_call_that_is_repeated_goes_on_with_its_task(
    own_api: Api, own_worker: ManualWorker, database: Database, *, noted: bool
) -> None:
    ask = {"agent": "nova", "message": "What is a fence?"}
    # What a lost worker leaves: the message is sent, and its task is in the ledger, or is not yet.
    begun = await caller_of(own_api, database).call("ask_remote_agent", **ask, timeout_s=0.1)
    run_id, thread_id = await sent_run(own_api)
    assert begun.endswith(f"[task_id: {run_id}, context_id: {thread_id}]")
    places = "SELECT key FROM idempotency_keys WHERE run_id = :run_id AND key LIKE 'place %'"
    [place] = await database.fetch(places, run_id=run_id)
    if not noted:
        await database.execute("DELETE FROM idempotency_keys WHERE key = :key", key=place["key"])
    again = asyncio.create_task(caller_of(own_api, database).call("ask_remote_agent", **ask))
    await own_worker.play(thread_id, "A number.")
    assert await again == f"A number.\n[task_id: {run_id}, context_id: {thread_id}]"
    assert len((await own_api.http.get("/v1/runs")).json()["items"]) == 1


async def test_a_task_that_asks_is_answered_by_the_next_call(
    own_api: Api, own_worker: ManualWorker, database: Database
) -> None:
    call = asyncio.create_task(caller_of(own_api, database).call("ask_remote_agent", agent="nova", message="Paint."))
    run_id, thread_id = await sent_run(own_api)
    turn = await own_worker.claim(thread_id)
    await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Which colour?")))
    assert "Which colour?" in await call
    answer = {"agent": "nova", "message": "Blue.", "task_id": run_id}
    later = asyncio.create_task(caller_of(own_api, database, call_id="toolu_2").call("ask_remote_agent", **answer))

    async def queued() -> bool:
        return (await own_api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"

    await until(queued)
    turn = await own_worker.claim(thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("It is blue.")
    assert (await later).startswith("It is blue.")


async def test_agents_elsewhere_are_listed_and_refusals_are_given_to_the_model(
    own_api: Api, database: Database
) -> None:
    assert (await caller_of(own_api, database).call("list_remote_agents")).startswith("nova: ")
    stranger = caller_of(own_api, database, key="nova_wrong")
    assert "cannot be asked now" in await stranger.call("list_remote_agents")
    assert (await stranger.call("ask_remote_agent", agent="nova", message="hello")).startswith("!The agent's card")
    caller = caller_of(own_api, database)
    assert "there is no 'other'" in await caller.call("ask_remote_agent", agent="other", message="hello")
    missing = await caller.call("ask_remote_agent", agent="nova", task_id="run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert missing.startswith("!The agent's server refuses: ")
    assert not (await own_api.http.get("/v1/runs")).json()["items"]
