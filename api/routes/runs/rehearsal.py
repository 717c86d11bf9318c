"""Sends messages to their route before the first real one, in memory, on a ledger that is rolled back.

They are accepted, their ends arrive over Redis, and they are answered, so the code of requests has run, and the session
has planned their statements and those of their constraints. They pass no middleware: nothing is counted, and no key is
used. Nothing rings, and no stream of events is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.datastructures import State
from starlette.routing import Route
from starlette.types import Message

from nova_workers.base.clock import Clock
from nova_workers.base.ids import new_id
from nova_workers.base.keys import run_channel
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import unrecorded
from nova_workers.contracts.content import text_block
from nova_workers.contracts.default_agents import DEFAULT_AGENTS
from nova_workers.contracts.events import StreamEnd, Usage
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.submit import Submitter
from nova_workers.domain.streams.rules.publisher import to_json
from nova_workers.domain.streams.rules.wire import RunEnding, encode, message_digest
from nova_workers.domain.upkeep.rules.rehearsal import PLANNED_AFTER, REHEARSED, RehearsalLedger, rehearsal
from nova_workers.ledger.visibility import one_tenant
from nova_workers.ledger.work import Silence, Work

from ...auth import Caller, keep_caller
from ...state import ApiState
from . import submissions

_PATH: Final = "/v1/runs/wait"
_PATIENCE: Final = b"timeout_s=1"
"""For an end that does not arrive, as while Redis is away."""
_TEXT: Final = "Hello"
_BODY: Final = orjson.dumps({"message": _TEXT, "agent_id": REHEARSED})


async def rehearse_messages(app: FastAPI) -> None:
    """Rehearse messages, on the session that the next request of a tenant would get.

    Raises:
        Unavailable: The database does not answer.
    """
    state: ApiState = app.state.nova
    tenant_id = new_id("ten")
    route = next(each for each in submissions.router.routes if isinstance(each, Route) and each.path == _PATH)
    with one_tenant(tenant_id), unrecorded():
        async with rehearsal(state.services.database, DEFAULT_AGENTS["nova"], tenant_id=tenant_id) as ledger:
            rehearsed = _Application(_rehearsed(state, ledger))
            for _ in range(PLANNED_AFTER):
                await route.app(_request(rehearsed, tenant_id), _Client(), _ignore)


class _Application:
    """What a route sees of the application."""

    def __init__(self, state: ApiState) -> None:
        self.state = State({"nova": state})


def _rehearsed(state: ApiState, ledger: RehearsalLedger) -> ApiState:
    """Return the state with what writes, rings and counts replaced."""
    services = state.services
    work = Work(ledger, _Worker(services.redis, services.clock))
    submitter = Submitter(work, services.scheduled)
    metrics = Metrics(CollectorRegistry())
    return replace(state, services=replace(services, database=ledger, submitter=submitter, metrics=metrics))


class _Worker(Silence):
    """Ends each run for which it is rung: publishes the end, and writes nothing."""

    def __init__(self, redis: Redis, clock: Clock) -> None:
        self._redis = redis
        self._clock = clock
        self._publishing: set[asyncio.Task[None]] = set()

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Publish the ends of runs, in the background."""
        for bell in bells:
            publishing = asyncio.create_task(self._publish_end(bell.run_id))
            self._publishing.add(publishing)
            publishing.add_done_callback(self._publishing.discard)

    async def _publish_end(self, run_id: str) -> None:
        now = self._clock.now()
        message = message_digest([text_block(_TEXT)])
        assert message is not None  # noqa: S101 - it is one short text
        ending = RunEnding(
            message=message,
            agent_id=REHEARSED,
            agent_version=1,
            turn_id=new_id("turn"),
            started_at=now,
            finished_at=now,
        )
        usage = Usage(input_tokens=1, output_tokens=1)
        end = StreamEnd(run_id=run_id, final=True, status="succeeded", stop_reason="end_turn", text=_TEXT, usage=usage)
        with suppress(RedisError):
            await self._redis.publish(run_channel(run_id), encode(1, [(1, to_json(end))], to_json(ending)))


def _request(app: _Application, tenant_id: str) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": _PATH,
        "path_params": {},
        "query_string": _PATIENCE,
        "headers": [(b"content-type", b"application/json")],
        "app": app,
    }
    key_id = new_id("key")
    caller = Caller(
        key_id=key_id,
        key_name="rehearsal",
        tenant_id=tenant_id,
        scopes=frozenset({"runs"}),
        address=None,
        principal=key_id,
    )
    keep_caller(scope, caller)
    return scope


class _Client:
    """Sends the body, and waits for the answer."""

    def __init__(self) -> None:
        self._messages: Iterator[Message] = iter([{"type": "http.request", "body": _BODY, "more_body": False}])

    async def __call__(self) -> Message:
        message = next(self._messages, None)
        return message or await asyncio.get_running_loop().create_future()


async def _ignore(message: Message) -> None:
    """Take a part of an answer."""
