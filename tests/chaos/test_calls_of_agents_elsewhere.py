"""A worker dies while an agent elsewhere works on what a run asked of it."""

from __future__ import annotations

import json

import pytest

from nova_workers.contracts.http.fleet import FleetPause
from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_DOOR = {"NOVA_DOORS": '["a2a"]', "NOVA_TOOLS__MCP_ALLOW_HOSTS": '["127.0.0.1"]'}


# `tests/integration/api/doors/test_a2a_calls.py` shows it with a worker that ends in the test process.
@pytest.mark.long
@proves("capabilities.a2a")
async def test_a_call_whose_worker_was_killed_goes_on_with_the_task_that_it_began(
    env: dict[str, str], database: Database
) -> None:
    async with Fleet({**env, **_DOOR}, workers=1) as fleet:
        there = {
            "url": f"{fleet.api_url}/a2a/there/.well-known/agent-card.json",
            "headers": {"Authorization": f"Bearer {fleet.api_key}"},
        }
        for agent_id, granted in (("there", {}), ("here", {"a2a": {"config": {"agents": {"there": there}}}})):
            spec = {"id": agent_id, "name": agent_id, "engine": "scripted", "capabilities": granted}
            await fleet.client.agents.create(AgentCreate.model_validate(spec))
        pause = FleetPause(scope="agent", agent_id="there")
        await fleet.client.fleet.pause(pause)
        asked = {"agent": "there", "message": json.dumps({"script": [{"say": "A number."}]})}
        script = [{"tool": {"name": "ask_remote_agent", "input": asked}}, {"say": "Done."}]
        run = await fleet.client.runs.create(
            StatelessRunCreate(agent_id="here", message=json.dumps({"script": script}))
        )
        # In the middle of the call: what a repetition needs is committed already.
        await until(lambda: database.fetchval("SELECT 1 FROM idempotency_keys WHERE key LIKE 'place %'"), timeout_s=60)
        fleet.workers[0].kill()
        await fleet.start_worker()
        lost = "SELECT 1 FROM runs WHERE id = :run_id AND attempt = 2 AND status = 'running'"
        await until(lambda: database.fetchval(lost, run_id=run.id), timeout_s=60)
        await fleet.client.fleet.resume(pause)
        done = await fleet.client.runs.result(run.id, timeout_s=60)
        assert (done.status, done.text) == ("succeeded", "Done.")
        [call] = await database.fetch("SELECT status, result->0->>'text' AS text FROM tool_calls")
        assert call["status"] == "completed"
        assert call["text"].startswith("A number.\n[task_id: run_")
        runs = (await fleet.client.runs.list()).items
        assert sorted(each.agent_id for each in runs) == ["here", "there"]
