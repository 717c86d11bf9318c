"""Requests that start or make something, repeated with their key, also after a commit whose reply was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.keys import orchestration_events
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

_KEY = {"Idempotency-Key": "job-1"}
_TRIGGER = {"agent_id": "nova", "kind": "every", "schedule": "3600", "prompt": "Look for orders."}


@pytest.fixture
async def link(database_url: str, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """The link between the API and the database."""
    async with FaultProxy.to_postgres(database_url, tmp_path) as link:
        yield link


@pytest.fixture
async def api(settings: Settings, link: FaultProxy, serve: Serve) -> Api:
    """An API behind that link."""
    return await serve(settings.model_copy(update={"database_url": SecretStr(link.url)}))


async def _new_trigger(api: Api) -> str:
    return (await api.http.post("/v1/triggers", json=_TRIGGER)).json()["id"]


async def _new_orchestration(api: Api) -> str:
    answer = await api.http.post("/v1/orchestrations", json={"task": "Sort the mail."})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def _fire(api: Api) -> tuple[str, dict[str, object] | None, str]:
    return f"/v1/triggers/{await _new_trigger(api)}/fire", None, "SELECT count(*) FROM trigger_firings"


async def _trigger(_: Api) -> tuple[str, dict[str, object] | None, str]:
    return "/v1/triggers", dict(_TRIGGER), "SELECT count(*) FROM triggers"


async def _task(_: Api) -> tuple[str, dict[str, object] | None, str]:
    return "/v1/tasks", {"title": "Sort the mail"}, "SELECT count(*) FROM tasks"


async def _thread(_: Api) -> tuple[str, dict[str, object] | None, str]:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    return "/v1/threads", {"messages": messages}, "SELECT count(*) FROM threads"


async def _fork(api: Api) -> tuple[str, dict[str, object] | None, str]:
    messages = [{"role": "user", "content": "Sort the mail."}, {"role": "assistant", "content": "It is sorted."}]
    thread = (await api.http.post("/v1/threads", json={"messages": messages})).json()["id"]
    return f"/v1/threads/{thread}/fork", {}, "SELECT count(*) FROM threads WHERE forked_from_thread_id IS NOT NULL"


async def _prompt(api: Api) -> tuple[str, dict[str, object] | None, str]:
    orchestration_id = await _new_orchestration(api)
    path = f"/v1/orchestrations/{orchestration_id}/agents/oag/prompt"
    return path, {"text": "Hurry."}, "SELECT count(*) FROM orchestration_messages"


async def _orchestration(_: Api) -> tuple[str, dict[str, object] | None, str]:
    return "/v1/orchestrations", {"task": "Sort the mail."}, "SELECT count(*) FROM orchestrations"


_KINDS = {
    "a firing": _fire,
    "a trigger": _trigger,
    "a task": _task,
    "an imported thread": _thread,
    "a fork": _fork,
    "a message to an agent": _prompt,
    "an orchestration": _orchestration,
}


@pytest.mark.parametrize("kind", _KINDS)
@proves("requests.once", "unavailable.finds-out")
async def test_a_repeated_request_has_its_effect_once(
    kind: str, api: Api, link: FaultProxy, database: Database
) -> None:
    path, body, count = await _KINDS[kind](api)
    link.loses_answer_to = b"COMMIT"
    first = await api.http.post(path, json=body, headers=_KEY)
    assert first.is_success, first.text
    assert "idempotent-replayed" not in first.headers
    assert link.loses_answer_to is None
    again = await api.http.post(path, json=body, headers=_KEY)
    assert (again.status_code, again.json()["id"]) == (first.status_code, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert await database.fetchval(count) == 1

    elsewhere = await api.http.post("/v1/runs", json={"message": "Hello"}, headers=_KEY)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (409, "idempotency_mismatch")


@pytest.mark.parametrize("headers", [_KEY, {}], ids=["with a key", "without a key"])
@proves("unavailable.finds-out")
async def test_a_message_to_an_agent_whose_commit_is_not_confirmed_is_sent_once_and_announced(
    headers: dict[str, str], api: Api, link: FaultProxy, database: Database, redis: Redis
) -> None:
    orchestration_id = await _new_orchestration(api)
    # Its master has ended: the message restarts it.
    await database.execute("UPDATE orchestration_agents SET state = 'COMPLETED', ended_at = now()")
    path = f"/v1/orchestrations/{orchestration_id}/agents/oag/prompt"
    link.loses_answer_to = b"COMMIT"
    answer = await api.http.post(path, json={"text": "Hurry."}, headers=headers)
    assert answer.is_success, answer.text
    assert link.loses_answer_to is None
    assert await database.fetchval("SELECT count(*) FROM orchestration_messages WHERE source_id IS NULL") == 1
    assert await database.fetchval("SELECT count(*) FROM runs") == 2

    async def is_announced() -> bool:
        return b"Hurry." in repr(await redis.xrange(orchestration_events(orchestration_id))).encode()

    await until(is_announced)
