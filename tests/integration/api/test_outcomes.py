"""Requests whose database goes away at any point: the answer says what is true of the ledger.

Each request is sent once for every message that it makes the API send to Postgres: the server takes that message, and
goes away with its answer. Where the client is answered that the outcome is unknown, the server also goes away before
the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import httpx2
import pytest
import pytest_asyncio
from pydantic import SecretStr
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.waits import AskApproval, AskUser
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.waits.sql.suspend import NewWait
from nova_workers.ledger import in_doubt
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import ManualWorker, make_tenant
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MOST_MESSAGES = 60
_MOST_UNKNOWN = 2


class _Stage:
    """An API behind a link to its database, and another way to the ledger."""

    def __init__(self, api: Api, link: FaultProxy, database: Database, worker: ManualWorker) -> None:
        self.api = api
        self.link = link
        self.database = database
        self.worker = worker
        self.sent = 0

    async def queued(self) -> str:
        """Return a run that is queued behind nothing."""
        return await self.api.run(await self.api.thread())

    async def running(self) -> tuple[str, str]:
        """Return a thread and its run, which a worker has."""
        thread = await self.api.thread()
        run = await self.api.run(thread)
        await self.worker.claim(thread)
        return thread, run

    async def waiting(self, request: AskUser | AskApproval) -> str:
        """Return a run that waits for a person."""
        thread = await self.api.thread()
        run = await self.api.run(thread)
        await (await self.worker.claim(thread)).suspend("", NewWait("call_0", request))
        return run

    async def orchestration(self) -> str:
        """Return an orchestration whose master is queued."""
        made = await self.api.http.post("/v1/orchestrations", json={"task": "Work."})
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def task(self) -> int:
        """Return a task that is open."""
        made = await self.api.http.post(
            "/v1/tasks", json={"title": "Work", "owner_agent_id": "nova", "status": "active"}
        )
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def trigger(self) -> str:
        """Return a trigger that is not due."""
        body = {"agent_id": "nova", "kind": "cron", "schedule": "0 0 1 1 *", "prompt": "Work."}
        made = await self.api.http.post("/v1/triggers", json=body)
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def post(self, path: str, body: object = None, **options: Any) -> httpx2.Response:
        return await self.api.http.post(path, json=body, **options)

    async def count(self, condition: str, **values: object) -> int:
        """Return how many runs fulfill a condition."""
        return cast(int, await self.database.fetchval(f"SELECT count(*) FROM runs WHERE {condition}", **values))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    shared_settings: Settings, shared_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[_Stage]:
    url = shared_settings.require_database_url()
    database, redis = PostgresDatabase(url, pool_size=2), Redis.from_url(shared_redis_url)
    publisher = EventPublisher(redis, flush_ms=0, clock=SystemClock())
    sending = asyncio.create_task(publisher.run())
    async with FaultProxy.to_postgres(url, tmp_path_factory.mktemp("link")) as link:
        settings = shared_settings.model_copy(update={"database_url": SecretStr(link.url)})
        tenant = await make_tenant(database)
        async with served(settings) as (base, state):
            api = Api(base, state, tenant)
            async with api.http:
                # Nothing is to be claimed but by a test; no message is of a timer.
                yield _Stage(api, link, database, ManualWorker(database, publisher))
    await stop_tasks([sending])
    await redis.aclose()
    await database.close()


@dataclass(frozen=True)
class _Request:
    """A request, and how the ledger shows that it was carried out.

    Attributes:
        prepare: Returns what the request is about.
        send: Sends it.
        is_done: Whether the ledger has it.
    """

    prepare: Callable[[_Stage], Awaitable[Any]]
    send: Callable[[_Stage, Any], Awaitable[httpx2.Response]]
    is_done: Callable[[_Stage, Any], Awaitable[bool]]


def _status(status: str) -> Callable[[_Stage, str], Awaitable[bool]]:
    async def is_done(stage: _Stage, run: str) -> bool:
        return await stage.count("id = :run AND status = :status", run=run, status=status) == 1

    return is_done


async def _is_requested(stage: _Stage, run: str) -> bool:
    return await stage.count("id = :run AND cancel_requested_at IS NOT NULL", run=run) == 1


def _submitting(path: str, headers: bool = False, **fields: object) -> _Request:
    """Return a submission to a thread that is busy, or to a new one."""

    async def prepare(stage: _Stage) -> tuple[str, str]:
        stage.sent += 1
        thread = "" if "{thread}" not in path else (await stage.running())[0]
        return thread, f"message-{stage.sent}-{len(path)}"

    async def send(stage: _Stage, about: tuple[str, str]) -> httpx2.Response:
        thread, text = about
        key = {"Idempotency-Key": text} if headers else {}
        return await stage.post(path.format(thread=thread), {"message": text, **fields}, headers=key)

    async def is_done(stage: _Stage, about: tuple[str, str]) -> bool:
        return await stage.count("content->0->>'text' = :text", text=about[1]) == 1

    return _Request(prepare, send, is_done)


def _pausing(action: str) -> _Request:
    scope = {"scope": "agent", "agent_id": "nova"}

    async def prepare(stage: _Stage) -> None:
        await stage.queued()
        if action == "resume":
            await stage.post("/v1/fleet/pause", scope)

    async def is_done(stage: _Stage, _: None) -> bool:
        # The other requests need an agent that is not paused.
        ended = await stage.database.fetch("DELETE FROM switches RETURNING scope")
        return bool(ended) == (action == "pause")

    return _Request(prepare, lambda stage, _: stage.post(f"/v1/fleet/{action}", scope), is_done)


async def _is_answered(stage: _Stage, run: str) -> bool:
    statement = "SELECT count(*) FROM run_waits WHERE run_id = :run AND status = 'resolved'"
    return await stage.database.fetchval(statement, run=run) == 1


async def _edit_is_done(stage: _Stage, run: str) -> bool:
    return await stage.count("id = :run AND content->0->>'text' = 'edited'", run=run) == 1


async def _thread_is_deleted(stage: _Stage, about: tuple[str, str]) -> bool:
    statement = "SELECT deleted_at IS NOT NULL FROM threads WHERE id = :thread"
    return await stage.database.fetchval(statement, thread=about[0])


async def _is_killed(stage: _Stage, orchestration: str) -> bool:
    statement = "SELECT state = 'KILLED' FROM orchestration_agents WHERE orchestration_id = :id"
    return await stage.database.fetchval(statement, id=orchestration)


async def _is_prompted(stage: _Stage, orchestration: str) -> bool:
    statement = "SELECT count(*) FROM orchestration_messages WHERE orchestration_id = :id"
    return await stage.database.fetchval(statement, id=orchestration) == 1


def _starting(path: str = "/v1/orchestrations") -> _Request:
    async def prepare(stage: _Stage) -> str:
        stage.sent += 1
        return f"task {stage.sent}"

    async def is_done(stage: _Stage, task: str) -> bool:
        return await stage.count("content->0->>'text' LIKE '%' || :task || ' end'", task=task) == 1

    return _Request(prepare, lambda stage, task: stage.post(path, {"task": f"{task} end"}), is_done)


async def _is_fired(stage: _Stage, trigger: str) -> bool:
    return await stage.count("trigger_id = :trigger", trigger=trigger) == 1


async def _is_working(stage: _Stage, task: int) -> bool:
    statement = "SELECT working_run_id IS NOT NULL FROM tasks WHERE tenant_id = :tenant_id AND id = :task"
    return await stage.database.fetchval(statement, tenant_id=stage.api.tenant.id, task=task)


_REQUESTS = {
    "a message": _submitting("/v1/runs"),
    "a message with a key": _submitting("/v1/runs", headers=True),
    "an interrupt": _submitting("/v1/threads/{thread}/runs", on_busy="interrupt"),
    "a cancel of a queued run": _Request(
        _Stage.queued, lambda stage, run: stage.post(f"/v1/runs/{run}/cancel"), _status("canceled")
    ),
    "a cancel of a running run": _Request(
        lambda stage: _second(stage.running()), lambda stage, run: stage.post(f"/v1/runs/{run}/cancel"), _is_requested
    ),
    "a cancel of a waiting run": _Request(
        lambda stage: stage.waiting(AskUser(question="Which?")),
        lambda stage, run: stage.post(f"/v1/runs/{run}/cancel"),
        _is_requested,
    ),
    "a bulk cancel": _Request(
        lambda stage: _second(stage.running()),
        lambda stage, run: stage.post("/v1/runs/cancel", {"agent_id": "nova", "status": "running"}),
        _is_requested,
    ),
    "a withdrawal": _Request(
        _Stage.queued, lambda stage, run: stage.api.http.delete(f"/v1/runs/{run}"), _status("canceled")
    ),
    "an edit": _Request(
        _Stage.queued,
        lambda stage, run: stage.api.http.patch(f"/v1/runs/{run}", json={"message": "edited"}),
        _edit_is_done,
    ),
    "an answer": _Request(
        lambda stage: stage.waiting(AskUser(question="Which?")),
        lambda stage, run: stage.post(f"/v1/runs/{run}/answers", {"text": "This."}),
        _is_answered,
    ),
    "an approval": _Request(
        lambda stage: stage.waiting(AskApproval(tool_name="Bash", params={}, reason="It is asked for.")),
        lambda stage, run: stage.post(f"/v1/runs/{run}/answers", {"approve": True}),
        _is_answered,
    ),
    "the end of a thread": _Request(
        _Stage.running, lambda stage, about: stage.api.http.delete(f"/v1/threads/{about[0]}"), _thread_is_deleted
    ),
    "a pause": _pausing("pause"),
    "a resume": _pausing("resume"),
    "a firing": _Request(_Stage.trigger, lambda stage, trigger: stage.post(f"/v1/triggers/{trigger}/fire"), _is_fired),
    "a run of a task": _Request(_Stage.task, lambda stage, task: stage.post(f"/v1/tasks/{task}/run"), _is_working),
    "an orchestration": _starting(),
    "a kill": _Request(
        _Stage.orchestration, lambda stage, id: stage.post(f"/v1/orchestrations/{id}/kill", {}), _is_killed
    ),
    "a prompt": _Request(
        _Stage.orchestration,
        lambda stage, id: stage.post(f"/v1/orchestrations/{id}/agents/oag/prompt", {"text": "More."}),
        _is_prompted,
    ),
}


async def _second(pair: Awaitable[tuple[str, str]]) -> str:
    return (await pair)[1]


_ONE_OF_EACH_KIND = {
    "a message",
    "a message with a key",
    "an interrupt",
    "a cancel of a running run",
    "an answer",
    "a pause",
    "the end of a thread",
    "a firing",
    "an orchestration",
}
"""A unit of work, one that is found again by its key, and one that changes two runs; a request to a run that is
executed, and one that begins a run again; a statement that commits by itself, a deletion, and what makes rows of other
homes.
"""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in _ONE_OF_EACH_KIND else pytest.mark.long) for name in _REQUESTS],
)
@proves("unavailable.says-what", "unavailable.written")
async def test_the_answer_is_true_wherever_the_database_goes_away(
    name: str, stage: _Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_doubt, "PATIENCE_S", 0.05)
    request, unknown = _REQUESTS[name], list[int]()
    for number in range(1, _MOST_MESSAGES):
        was_cut, is_unknown = await _cut(stage, request, number, takes_it=True)
        if is_unknown:
            unknown.append(number)
        if not was_cut:
            break
    else:
        pytest.fail(f"{name} sends more than {_MOST_MESSAGES} messages")
    # At the commit, and nowhere else: what cut it off is not known to the API. A statement that commits by itself is
    # two messages, of which the first prepares it.
    assert len(unknown) <= _MOST_UNKNOWN, unknown
    # The API sees the same as if the message had arrived, so elsewhere the answer and the ledger are the same, too.
    for number in unknown:
        await _cut(stage, request, number, takes_it=False)


async def _cut(stage: _Stage, request: _Request, number: int, *, takes_it: bool) -> tuple[bool, bool]:
    """Send a request whose database goes away at a message, and check the answer.

    Args:
        stage: The API.
        request: The request.
        number: Of the message.
        takes_it: Whether the message arrives.

    Returns:
        Whether there was such a message, and whether the answer is that the outcome is unknown.
    """
    about = await request.prepare(stage)
    stage.link.takes_the_last = takes_it
    stage.link.goes_away_at = number
    async with asyncio.timeout(60):
        answer = await request.send(stage, about)
    was_cut = stage.link.goes_away_at == 0
    stage.link.heal()
    is_done = await request.is_done(stage, about)
    where = f"message {number}: {answer.status_code} {answer.text}; in the ledger: {is_done}"
    assert answer.is_success or (was_cut and answer.status_code == 503), where
    if answer.is_success:
        assert is_done, where
        return was_cut, False
    return was_cut, await _check(stage, answer, is_done=is_done, where=where)


async def _check(stage: _Stage, answer: httpx2.Response, *, is_done: bool, where: str) -> bool:
    """Check an answer of a request that failed; return whether its outcome is unknown."""
    problem = answer.json()
    assert "5432" not in problem["detail"], where
    assert "asyncpg" not in problem["detail"].lower(), where
    assert "Error" not in problem["detail"], where
    if problem["code"] == "unavailable":
        assert not is_done, where
        assert problem["context"]["may_be_written"] is False
        assert "Nothing was written" in problem["detail"], where
        return False
    assert problem["code"] == "outcome_unknown", where
    assert problem["context"]["may_be_written"] is True
    assert "retry-after" not in answer.headers
    found = await stage.api.http.get(problem["context"]["look_up"])
    assert found.status_code in {200, 404, 410}, found.text
    return True
