"""A run that waits for a person survives the death of every process of the fleet."""

from __future__ import annotations

import json

import pytest

from nova_workers.base.errors import IllegalTransition
from nova_workers.contracts.http.wire import AgentCreate, RunView, StatelessRunCreate
from nova_workers.contracts.waits import RunAnswer
from nova_workers.ledger.database import PostgresDatabase
from tests.chaos.conftest import OwnServers
from tests.requirements import proves
from tests.support.processes.fleet import Fleet

pytestmark = pytest.mark.fleet

_ASK = {"tool": {"name": "ask_user", "input": {"question": "Shall I?", "options": ["yes", "no"]}}}


async def _ask(fleet: Fleet) -> RunView:
    """Let an agent ask a person, and return its waiting run."""
    spec = {"id": "asker", "name": "Asker", "engine": "scripted", "capabilities": {"user": {}, "memory": {}}}
    await fleet.client.agents.create(AgentCreate.model_validate(spec))
    remember = {"tool": {"name": "memory_save", "input": {"content": "It was asked"}}}
    message = json.dumps({"script": [remember, _ASK, {"say": "Done."}]})
    return await fleet.client.runs.wait(StatelessRunCreate(message=message, agent_id="asker"))


@proves("suspend.restart", "suspend.once")
async def test_a_run_that_waits_for_a_person_survives_the_death_of_everything_and_finishes_once(
    own_servers: OwnServers,
):
    async with Fleet(own_servers.env, workers=1, beat=True) as fleet:
        run = await _ask(fleet)
        assert (run.status, run.waiting_for) == ("waiting", "a person's answer")
        worker, api = fleet.workers[0], fleet.api
        assert api is not None
        for process in (worker, api):
            process.kill()
        await own_servers.valkey.kill()
        await own_servers.valkey.start()
        await fleet.start_api()
        await fleet.start_worker()
        (wait,) = (await fleet.client.runs.waits()).items
        assert wait.run_id == run.id
        await fleet.client.runs.answer(run.id, RunAnswer(text="yes"))
        with pytest.raises(IllegalTransition):
            await fleet.client.runs.answer(run.id, RunAnswer(text="no"))
        done = await fleet.client.runs.result(run.id)
        assert (done.status, done.text, done.waits) == ("succeeded", "Done.", [])
        await _check_it_ended_once(own_servers.database_url, run.id)


async def _check_it_ended_once(database_url: str, run_id: str) -> None:
    database = PostgresDatabase(database_url, pool_size=1)
    try:
        calls = await database.fetch("SELECT tool_name, status, result FROM tool_calls ORDER BY sequence")
        assert [(call["tool_name"], call["status"]) for call in calls] == [
            ("memory_save", "completed"),
            ("ask_user", "completed"),
        ]
        assert calls[1]["result"] == [{"type": "text", "text": "yes"}]
        assert await database.fetchval("SELECT count(*) FROM memories") == 1
        assert await database.fetchval("SELECT count(*) FROM usage WHERE run_id = :run_id", run_id=run_id) == 1
        assert await database.fetchval("SELECT turn_count FROM threads") == 1
    finally:
        await database.close()


# `test_trees.py` has more agents on one slot, and kills its worker.
@pytest.mark.long
@proves("suspend.one-slot")
async def test_three_agents_finish_on_a_worker_with_one_slot(env: dict[str, str]):
    async with Fleet(env, workers=1, beat=True, concurrency=1) as fleet:
        for agent_id in ("a", "b", "c"):
            spec = {"id": agent_id, "name": agent_id, "engine": "scripted", "capabilities": {"agents": {}}}
            await fleet.client.agents.create(AgentCreate.model_validate(spec))
        message = _asking("b", _asking("c", json.dumps({"script": [{"say": "from c"}]}), "from b"), "from a")
        run = await fleet.client.runs.wait(StatelessRunCreate(message=message, agent_id="a"))
        assert (run.status, run.text) == ("succeeded", "from a")
        runs = (await fleet.client.runs.list()).items
        assert {each.agent_id: each.text for each in runs} == {"a": "from a", "b": "from b", "c": "from c"}


def _asking(agent_id: str, message: str, then: str) -> str:
    call = {"tool": {"name": "ask_agent", "input": {"agent_id": agent_id, "message": message}}}
    return json.dumps({"script": [call, {"say": then}]})
