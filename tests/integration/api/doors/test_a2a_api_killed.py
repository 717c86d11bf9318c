"""Clients of the A2A door over the death of its API process: the SDK's, and the capability `a2a` of an agent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest
from a2a.client.errors import A2AClientError
from a2a.types import StreamResponse, SubscribeToTaskRequest, TaskState

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.integration.api.doors.test_a2a import answer_of, client_of, rest_of, said, states_of
from tests.support.processes.fleet import Fleet, fleet_env
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.fleet]

_WORDS = " ".join(f"word{number}" for number in range(120))
_ASK = {"name": "ask_user", "input": {"question": "Shall I go on?"}}
_SCRIPT = {"script": [{"say": _WORDS, "tokens_per_s": 30, "tool": _ASK}, {"say": "The end."}]}
_DOOR = {"NOVA_DOORS": '["a2a"]', "NOVA_TOOLS__MCP_ALLOW_HOSTS": '["127.0.0.1"]'}


async def test_clients_whose_api_is_killed_in_mid_task_miss_nothing_of_it(
    settings: Settings, database: Database
) -> None:
    async with Fleet({**fleet_env(settings), **_DOOR}) as fleet:
        await _add_agents(fleet)
        asked = {"agent": "there", "message": json.dumps(_SCRIPT)}
        script = {"script": [{"tool": {"name": "ask_remote_agent", "input": asked}}, {"say": "Asked."}]}
        asking = await fleet.client.runs.create(StatelessRunCreate(agent_id="here", message=json.dumps(script)))
        task_id = await until(lambda: _run_of(fleet, "there"))

        async with client_of(fleet.api_url, fleet.api_key, agent="there") as client:
            with pytest.raises((A2AClientError, httpx.TransportError)):
                await _read_and_kill(fleet, client.subscribe(SubscribeToTaskRequest(id=task_id)))
            await fleet.start_api()
            rest = await rest_of(client.subscribe(SubscribeToTaskRequest(id=task_id)))
            assert _text_of(rest) == _WORDS
            assert states_of(rest)[-1] == TaskState.TASK_STATE_INPUT_REQUIRED

            # The agent's call went on too: it has the task's question, and the task is one.
            done = await fleet.client.runs.result(asking.id, timeout_s=60)
            assert (done.status, done.text) == ("succeeded", "Asked.")
            asked_of = "SELECT result->0->>'text' FROM tool_calls WHERE tool_name = 'ask_remote_agent'"
            assert "Shall I go on?" in await database.fetchval(asked_of)
            assert len((await fleet.client.runs.list()).items) == 2

            end = await rest_of(client.send_message(said("Yes.", task_id=str(task_id))))
            assert answer_of(end) == "The end."
            assert states_of(end)[-1] == TaskState.TASK_STATE_COMPLETED


async def _add_agents(fleet: Fleet) -> None:
    card = f"{fleet.api_url}/a2a/there/.well-known/agent-card.json"
    there = {"url": card, "headers": {"Authorization": f"Bearer {fleet.api_key}"}}
    for agent_id, granted in (("there", {"user": {}}), ("here", {"a2a": {"config": {"agents": {"there": there}}}})):
        spec = {"id": agent_id, "name": agent_id, "engine": "scripted", "capabilities": granted}
        await fleet.client.agents.create(AgentCreate.model_validate(spec))


async def _run_of(fleet: Fleet, agent_id: str) -> str | None:
    return next((run.id for run in (await fleet.client.runs.list()).items if run.agent_id == agent_id), None)


async def _read_and_kill(fleet: Fleet, stream: AsyncIterator[StreamResponse]) -> None:
    """Read events, and kill the API after some text."""
    read = 0
    async for event in stream:
        read += event.HasField("artifact_update")
        if read == 5 and fleet.api is not None:
            fleet.api.kill()


def _text_of(events: list[StreamResponse]) -> str:
    """Return the answer of a stream whose task had a part of it, or none, at the beginning."""
    before = "".join(part.text for artifact in events[0].task.artifacts for part in artifact.parts)
    return answer_of(events) or before
