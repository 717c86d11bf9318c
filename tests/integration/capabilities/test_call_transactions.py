"""Tools write to the ledger under the fence of their run, in the transaction that records the result of the call."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextContent
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import NotFound, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.bootstrap.orchestrations import build_orchestrator, build_starter
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import Message
from nova_workers.contracts.engine import CALL_ID, DEFERRAL, InProcessMcpServer, StepRecord, ToolCall
from nova_workers.contracts.runs import Claim
from nova_workers.domain.capabilities.rules import CapabilityContext, CapabilityRegistry, default_registry, serving
from nova_workers.domain.capabilities.rules.serving import ToolServer
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.journal import commit_calls
from nova_workers.domain.streams.rules.wire import FIELD
from nova_workers.engines.native import CommandRunner, ShellSettings
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import Work
from tests.integration.capabilities.stage import KEY, calls, open_stage, says
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault, FaultInjectingDatabase, FaultInjector
from tests.support.harness.invariants import check_any_time
from tests.support.harness.trees import MODELS, Forest, script
from tests.support.harness.trees import call as scripted_call
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import model_server

_BOSS = "boss"
_GRANTS = ("agent-management", "agents", "file-send", "memory", "notes", "orchestrations", "secrets", "self", "tasks")
_SPEC = {
    "name": "Boss",
    "engine": "scripted",
    "trust": "controlled",
    "capabilities": {name: {} for name in (*_GRANTS, "triggers", "user", "audio", "state")},
    "responsibilities": [{"title": "Sweep", "content": "The yard."}, {"title": "Cook", "content": "Soup."}],
}

_WRITE_NOTHING = {"ask_agent", "ask_user", "wait_until", "wait_for_orchestration", "wait_for_message"}
"""The statement that suspends the run writes for them."""
_EFFECTS_ELSEWHERE = {"audio_speak", "run_bash"}
"""Their effects are files and programs."""
_ASK_ELSEWHERE = {"ask_remote_agent"}
"""Their effects are at other servers, which take a repeated request once."""
_NOT_REPEATABLE = {"secret_update"}
"""The journal has no secrets to repeat it with."""

_TASK = {"title": "Paint", "owner_agent_id": _BOSS, "status": "active", "steps": [{"title": "Sand"}]}
_TRIGGER = {"kind": "cron", "schedule": "0 9 * * *", "prompt": "Good morning"}
_ID = re.compile(r"\b(?:note|mem|tre|tst|trg|orc)_[0-9A-Z]{26}\b|(?<=task )\d+")

Make = Callable[..., Awaitable[list[str]]]
"""Calls a tool, and returns the ids in its result."""


async def _of_task(make: Make, **more: Any) -> dict[str, Any]:
    return {"task_id": int((await make("task_create", **_TASK))[0]), **more}


async def _of_step(make: Make, **more: Any) -> dict[str, Any]:
    ids = await make("task_create", **_TASK)
    return {"task_id": int(ids[0]), "step_id": next(each for each in ids if each.startswith("tst_")), **more}


async def _of_resource(make: Make) -> dict[str, Any]:
    task_id = int((await make("task_create", **_TASK))[0])
    ids = await make("task_add_resource", task_id=task_id, kind="url", value="https://example.com/a")
    return {"task_id": task_id, "resource_id": ids[0]}


async def _of_note(make: Make, **more: Any) -> dict[str, Any]:
    return {"note_id": (await make("note_create", title="A", content="B"))[0], **more}


async def _of_memory(make: Make) -> dict[str, Any]:
    return {"memory_id": (await make("memory_save", content="The sky is blue."))[0]}


async def _of_trigger(make: Make, **more: Any) -> dict[str, Any]:
    return {"trigger_id": (await make("trigger_create", **_TRIGGER))[0], **more}


async def _of_agent(make: Make, agent_id: str, **more: Any) -> dict[str, Any]:
    await make("agent_create", id=agent_id, name="Helper")
    return {"id": agent_id, **more}


async def _of_orchestration(make: Make) -> dict[str, Any]:
    return {"orchestration_id": (await make("start_orchestration", task="x", wait=False))[0], "reason": "enough"}


async def _given(**arguments: Any) -> dict[str, Any]:
    return arguments


_ARGUMENTS: dict[str, Callable[[Make], Awaitable[dict[str, Any]]]] = {
    "agent_create": lambda _: _given(id="new-one", name="New"),
    "agent_update": lambda make: _of_agent(make, "changed-one", name="Other"),
    "agent_delete": lambda make: _of_agent(make, "gone-one"),
    "file_send": lambda _: _given(content="hello", name="a.txt"),
    "memory_save": lambda _: _given(content="Water is wet."),
    "memory_delete": _of_memory,
    "note_create": lambda _: _given(title="T", content="C"),
    "note_update": lambda make: _of_note(make, append="more"),
    "note_delete": _of_note,
    "note_share": _of_note,
    "note_pin": _of_note,
    "notify_user": lambda _: _given(message="Look!"),
    "start_orchestration": lambda _: _given(task="y", wait=False),
    "kill_orchestration": _of_orchestration,
    "secret_update": lambda _: _given(name="TOKEN", value="a-long-enough-value"),
    "self_set_instructions": lambda _: _given(instructions="Be brief."),
    "self_add_responsibility": lambda _: _given(title="Sing", content="Loud."),
    "self_update_responsibility": lambda _: _given(title="Sweep", content="The street."),
    "self_remove_responsibility": lambda _: _given(title="Cook"),
    "state": lambda _: _given(action="merge", value={"step": 1}),
    "task_create": lambda _: _given(**_TASK),
    "task_update": lambda make: _of_task(make, title="Paint it"),
    "task_complete": lambda make: _of_task(make, outcome="Done."),
    "task_cancel": lambda make: _of_task(make, outcome="No."),
    "task_update_steps": lambda make: _of_task(make, steps=[{"title": "Wash"}]),
    "task_update_step": lambda make: _of_step(make, done=True),
    "task_create_subtask": _of_step,
    "task_add_resource": lambda make: _of_task(make, kind="url", value="https://example.com"),
    "task_remove_resource": _of_resource,
    "trigger_create": lambda _: _given(**_TRIGGER),
    "trigger_update": lambda make: _of_trigger(make, prompt="Good evening"),
    "trigger_delete": _of_trigger,
}

_OF_AGENTS_OF_TREES: dict[str, dict[str, Any]] = {
    "ask_parent": {"question": "Why?"},
    "consult_expert": {"expert_id": "e", "question": "Why?"},
    "consult_peer": {"question": "Why?", "peer": "scripted"},
    "report_progress": {"status": "half"},
    "respond_to_child": {"child_id": "x", "response": "So."},
    "restart_child": {"child_id": "x", "prompt": "Again."},
    "send_child_prompt": {"child_id": "x", "prompt": "Hey."},
    "spawn_child": {"prompt": "Do it."},
    "spawn_children_parallel": {"children": [{"prompt": "Do it."}]},
    "task_complete": {"summary": "All."},
}


class _Called:
    """What the model would get of a call."""

    def __init__(self, text: str, *, failed: bool, deferred: bool) -> None:
        self.text = text
        self.failed = failed
        self.deferred = deferred


class _Hand:
    """Calls tools as the turns of claims do, with the parts that a worker gives to its tools."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.faults = FaultInjector()
        database = FaultInjectingDatabase(harness.database, self.faults)
        calls = self.transactions = CallTransactions(Work(database, harness.bells, harness.notifier))
        self.registry: CapabilityRegistry = default_registry(
            calls.work.database,
            harness.settings,
            SystemClock(),
            work=calls.work,
            orchestrations=build_starter(calls.work, harness.models, harness.settings),
            serve=ToolServer(calls),
        )
        self.registry.add(
            build_orchestrator(calls, harness.models, CommandRunner(ShellSettings()), harness.settings, self.registry)
        )
        self.spec = AgentSpec.model_validate(_SPEC)
        self._made = 0

    def writing_tools(self, *, of_trees: bool) -> set[str]:
        """Return the names of the tools that are not read-only."""
        return {
            tool.name
            for capability in self.registry.discover()
            for tool in capability.tools
            if not tool.read_only and (capability.name == "orchestrator") == of_trees
        }

    async def call(self, claim: Claim, tool: str, call_id: str, /, **given: Any) -> _Called:
        """Call a tool under a claim."""
        context = CapabilityContext(
            claim.tenant_id,
            claim.agent_id,
            claim.thread_id,
            claim.run_id,
            queue="background",
            agent=self.spec,
            place=claim.place,
            turn_id=claim.turn_id,
            fence=claim.fence,
        )
        for server in (await self.registry.resolve(self.spec, context)).values():
            if not isinstance(server, InProcessMcpServer) or tool not in {each.name for each in server.listing or ()}:
                continue
            async with Client(server.built()) as client:
                result = await client.call_tool(tool, given, meta={CALL_ID: call_id})
            text = "".join(each.text for each in result.content if isinstance(each, TextContent))
            return _Called(text, failed=bool(result.is_error), deferred=DEFERRAL in (result.meta or {}))
        raise AssertionError(f"The run has no tool {tool!r}")

    async def make(self, claim: Claim, tool: str, /, **given: Any) -> list[str]:
        """Call a tool that the journal does not know, and return the ids in its result."""
        self._made += 1
        done = await self.call(claim, tool, f"made_{self._made}", **given)
        assert not done.failed, f"{tool}: {done.text}"
        return _ID.findall(done.text)

    async def journal(self, claim: Claim, step: int, tool: str, given: dict[str, Any]) -> str:
        """Journal a step with one pending call, and return the call's id."""
        call = ToolCall(f"call_{step}", tool, given, step=step, sequence=step)
        block = {"type": "tool_use", "id": call.id, "name": tool, "input": given}
        record = StepRecord(step, (Message("assistant", (block,)),), (call,), complete=False)
        await commit_calls(self.harness.database, claim.run_id, claim.fence, record, seq=step + 1, event_id="1-1")
        return call.id

    async def recorded(self, claim: Claim, call_id: str) -> tuple[str, str | None]:
        """Return status and text of a call in the journal."""
        row = await self.harness.database.fetchrow(
            "SELECT status, result->0->>'text' AS text FROM tool_calls WHERE turn_id = :turn_id AND call_id = :call_id",
            turn_id=claim.turn_id,
            call_id=call_id,
        )
        assert row is not None
        return row["status"], row["text"]

    async def ledger(self) -> dict[str, list[str]]:
        """Return all rows of all tables."""
        tables = await self.harness.database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        found: dict[str, list[str]] = {}
        for table in tables:
            rows = await self.harness.database.fetch(f'SELECT t::text AS row FROM "{table["tablename"]}" t ORDER BY 1')
            found[table["tablename"]] = [row["row"] for row in rows]
        return found


async def _claims(harness: Harness, thread_id: str) -> tuple[Claim, Claim]:
    """Return the claim of a worker that lost its run, and that of its successor."""
    async with harness.database.connection() as connection:
        lost = await claim_next(connection, thread_id, worker_id="old", lease_ttl_s=30, max_attempts=5)
        await harness.recover()
        held = await claim_next(connection, thread_id, worker_id="new", lease_ttl_s=30, max_attempts=5)
    assert isinstance(lost, Claim)
    assert isinstance(held, Claim)
    harness.bells.take()
    return lost, held


@pytest.fixture
async def hand(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[_Hand]:
    given = {"secrets": {"keys": [KEY]}}
    harness = Harness(database, redis, Settings.model_validate({**settings.model_dump(), **given}))
    await harness.open()
    await harness.add_agent(_BOSS, _SPEC)
    yield _Hand(harness)
    await harness.close()


async def test_each_tool_that_writes_is_tested_here_and_may_be_run_again(hand: _Hand):
    own, of_trees = hand.writing_tools(of_trees=False), hand.writing_tools(of_trees=True)
    assert own - _WRITE_NOTHING - _EFFECTS_ELSEWHERE - _ASK_ELSEWHERE == set(_ARGUMENTS)
    assert of_trees - _WRITE_NOTHING - _EFFECTS_ELSEWHERE == set(_OF_AGENTS_OF_TREES)
    effects = [each for tools in hand.registry.tool_effects().values() for each in (tools or {}).items()]
    # Those of a tree are decided by the orchestration itself.
    assert {tool for tool, effect in effects if effect == "writes-files"} == _EFFECTS_ELSEWHERE - {"run_bash"}
    once = {tool.name for each in hand.registry.discover() for tool in each.tools if not tool.idempotent}
    assert once == _EFFECTS_ELSEWHERE | _NOT_REPEATABLE


@proves("tools.fenced", "tools.recorded")
async def test_a_tool_writes_nothing_without_the_fence_and_with_it_once_although_the_reply_is_lost(hand: _Hand):
    harness = hand.harness
    accepted = await harness.submit("go", agent_id=_BOSS)
    lost, held = await _claims(harness, accepted.thread_id)
    for step, (tool, arguments) in enumerate(_ARGUMENTS.items()):
        given = await arguments(partial(hand.make, held))
        call_id = await hand.journal(held, step, tool, given)
        harness.bells.take()
        rung, before = harness.bells.deliveries_rung, await hand.ledger()

        refused = await hand.call(lost, tool, call_id, **given)
        assert refused.failed, tool
        assert f"Run {held.run_id!r} is no longer held under fence {lost.fence}" in refused.text, tool
        assert await hand.ledger() == before, tool
        assert (harness.bells.take(), harness.bells.deliveries_rung) == ([], rung), tool

        hand.faults.log.clear()
        if tool not in _NOT_REPEATABLE:
            hand.faults.plan("lose_reply", "seal_call")
        done = await hand.call(held, tool, call_id, **given)
        assert not done.failed, f"{tool}: {done.text}"
        assert hand.faults.log.count("seal_call") == 1, tool
        assert await hand.recorded(held, call_id) == ("completed", done.text), tool
        after = await hand.ledger()
        assert {name for name in after if after[name] != before[name]} - {"tool_calls", "audit_log"}, tool


@proves("tools.fenced")
async def test_a_tool_of_an_agent_of_a_tree_writes_nothing_without_the_fence(hand: _Hand):
    harness = hand.harness
    forest = Forest(harness)
    started = await forest.start(task="go", config=MODELS)
    thread_id = await harness.database.fetchval("SELECT thread_id FROM runs WHERE id = :id", id=started.run_id)
    lost, held = await _claims(harness, thread_id)
    assert lost.place is not None
    # The tools of all roles but experts, whose tools workers have too.
    lost, before = replace(lost, place=lost.place.model_copy(update={"role": "WORKER"})), await hand.ledger()
    for tool, given in _OF_AGENTS_OF_TREES.items():
        refused = await hand.call(lost, tool, "call_0", **given)
        assert refused.failed, tool
        assert f"Run {held.run_id!r} no longer works for agent" in refused.text, f"{tool}: {refused.text}"
        assert await hand.ledger() == before, tool


@proves("tools.recorded")
async def test_the_model_gets_the_result_of_a_committed_call_however_long_the_database_is_away(
    hand: _Hand, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serving, "_PAUSES_S", (0.0, 0.0))
    accepted = await hand.harness.submit("go", agent_id=_BOSS)
    _, held = await _claims(hand.harness, accepted.thread_id)
    call_id = await hand.journal(held, 0, "task_create", _TASK)
    hand.faults.plan("lose_reply", "seal_call")
    for _ in range(10):
        hand.faults.plan("refuse", "find_results")
    done = await hand.call(held, "task_create", call_id, **_TASK)
    assert not done.failed, done.text
    assert await hand.recorded(held, call_id) == ("completed", done.text)
    assert await hand.harness.database.fetchval("SELECT count(*) FROM tasks") == 1


@proves("tools.recorded")
async def test_a_call_that_may_be_committed_does_not_fail_as_one_that_wrote_nothing(
    hand: _Hand, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serving, "_PAUSES_S", (0.0,))
    accepted = await hand.harness.submit("go", agent_id=_BOSS)
    _, held = await _claims(hand.harness, accepted.thread_id)
    # The journal does not know the call, like that of a subagent. The second try is refused.
    hand.faults.plan("lose_reply", "seal_call")
    hand.faults.plan("refuse", "seal_call")
    done = await hand.call(held, "self_set_instructions", "unknown", instructions="Be brief.")
    assert done.failed
    assert done.text == "The test dropped the reply."


@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
@proves("tools.recorded")
async def test_a_tool_takes_effect_once_although_its_worker_crashes_around_its_commit(hand: _Hand, fault: Fault):
    harness = hand.harness
    worker, other = harness.worker(), harness.worker()
    worker.faults.plan(fault, "seal_call")
    say = scripted_call("note_create", title="T", content="C")
    run = await harness.submit(script(say, {"say": "The end."}), agent_id=_BOSS)
    await harness.settle(worker)
    assert worker.faults.dead
    await worker.crash()
    await harness.recover()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    (note_id,) = [each["id"] for each in await harness.database.fetch("SELECT id FROM notes")]
    calls = await harness.database.fetch("SELECT status, result->0->>'text' AS text FROM tool_calls")
    assert [tuple(each) for each in calls] == [("completed", f"Created {note_id}.")]
    assert ("seal_call" in other.faults.log) == (fault == "crash_before")
    await other.publisher.drain(5)
    assert await _statuses(harness, run.run_id, attempt=2) == (["started"] if fault == "crash_before" else []) + [
        "completed"
    ]
    await check_any_time(harness.database)


@proves("tools.recorded")
async def test_a_call_that_is_canceled_after_its_commit_keeps_its_result(hand: _Hand):
    harness = hand.harness
    worker = harness.worker()
    # The reply to the commit is lost, and the cancel comes before the call knows that it was committed.
    worker.faults.plan("lose_reply", "seal_call")
    worker.faults.hold("find_results")
    run = await harness.submit(script(scripted_call("note_create", title="T", content="C")), agent_id=_BOSS)
    slot = await harness.start_next(worker)
    await worker.faults.reached()
    worker.faults.stopped.clear()
    assert worker.keeper.cancel(run.run_id, "cancel")
    await worker.faults.reached()
    worker.faults.step()
    await slot
    assert await harness.status(run.run_id) == "canceled"
    text = f"Created {await harness.database.fetchval('SELECT id FROM notes')}."
    (call,) = await harness.database.fetch("SELECT status, result->0->>'text' AS text, error FROM tool_calls")
    assert tuple(call) == ("completed", text, None)
    *_, results = await harness.transcript(run.run_id)
    assert [block["content"][0]["text"] for block in results["content"]] == [text]
    await worker.publisher.drain(5)
    assert await _statuses(harness, run.run_id, attempt=1) == ["started", "completed"]


@proves("tools.recorded")
async def test_a_call_that_is_canceled_in_its_commit_is_committed_and_followed(
    hand: _Hand, monkeypatch: pytest.MonkeyPatch
):
    accepted = await hand.harness.submit("go", agent_id=_BOSS)
    _, held = await _claims(hand.harness, accepted.thread_id)
    call_id = await hand.journal(held, 0, "task_create", _TASK)
    reached, go, followed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(_: str) -> None:
        reached.set()
        await go.wait()

    def ring(_: object) -> None:
        followed.set()

    monkeypatch.setattr(hand.harness.notifier, "apply_interrupt", wait)
    monkeypatch.setattr(hand.harness.bells, "ring_runs", ring)

    async def write() -> None:
        async with hand.transactions.open(_context(held, call_id)) as call, hand.transactions.work.begin() as tx:
            call.result = "Done."
            tx.interrupt(held.run_id)
            tx.ring([accepted.doorbell])
            await tx.connection.execute("UPDATE agents SET updated_at = now()")

    writing = asyncio.create_task(write())
    await reached.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go.set()
    async with asyncio.timeout(60):
        await followed.wait()
    assert await hand.recorded(held, call_id) == ("completed", "Done.")


@pytest.mark.parametrize("fails_first", [False, True])
@proves("tools.recorded")
async def test_a_part_of_a_call_that_fails_is_undone_alone_with_what_was_to_follow_it(hand: _Hand, fails_first: bool):
    accepted = await hand.harness.submit("go", agent_id=_BOSS)
    _, held = await _claims(hand.harness, accepted.thread_id)
    call_id = await hand.journal(held, 0, "note_create", {})

    async def write(title: str, *, fails: bool = False) -> None:
        async with hand.transactions.work.begin() as tx:
            # A part of the part.
            async with hand.transactions.work.begin_statement() as inner:
                await _add_note(inner.connection, title)
                inner.ring([replace(accepted.doorbell, run_id=f"{title} inner")])
            await _add_note(tx.connection, title)
            tx.ring([replace(accepted.doorbell, run_id=title)])
            if fails:
                raise NotFound("It is not there.")

    async with hand.transactions.open(_context(held, call_id)) as call:
        call.result = "Done."
        if not fails_first:
            await write("first")
        with pytest.raises(NotFound):
            await write("lost", fails=True)
        await write("last")
        assert not hand.harness.bells.waiting
    titles = ["last"] if fails_first else ["first", "last"]
    rows = await hand.harness.database.fetch("SELECT title FROM notes ORDER BY id")
    assert [row["title"] for row in rows] == [title for title in titles for _ in range(2)]
    assert [bell.run_id for bell in hand.harness.bells.take()] == [
        name for title in titles for name in (f"{title} inner", title)
    ]
    assert await hand.recorded(held, call_id) == ("completed", "Done.")


@pytest.mark.parametrize("nth", [1, 2], ids=["savepoint", "insert"])
@proves("tools.recorded")
async def test_a_call_whose_transaction_is_lost_fails_although_its_tool_goes_on(hand: _Hand, nth: int):
    accepted = await hand.harness.submit("go", agent_id=_BOSS)
    _, held = await _claims(hand.harness, accepted.thread_id)
    call_id = await hand.journal(held, 0, "note_create", {})
    work = hand.transactions.work

    async def write_twice() -> None:
        async with hand.transactions.open(_context(held, call_id)):
            async with work.begin() as tx:
                await _add_note(tx.connection, "first")
                tx.ring([accepted.doorbell])
            hand.faults.plan("refuse", "other", nth=nth)
            with pytest.raises(Unavailable):
                async with work.begin() as tx:
                    await _add_note(tx.connection, "second")

    with pytest.raises(Unavailable):
        await write_twice()
    assert not await hand.harness.database.fetch("SELECT id FROM notes")
    assert not hand.harness.bells.take()
    assert await hand.recorded(held, call_id) == ("pending", None)


def _context(claim: Claim, call_id: str) -> CapabilityContext:
    return CapabilityContext("ten_test", _BOSS, claim.thread_id, claim.run_id, fence=claim.fence, call_id=call_id)


async def _add_note(connection: Connection, title: str) -> None:
    await connection.execute(
        "INSERT INTO notes (id, tenant_id, agent_id, title, content) VALUES (:id, 'ten_test', :agent_id, :title, '')",
        id=new_id("note"),
        agent_id=_BOSS,
        title=title,
    )


async def _statuses(harness: Harness, run_id: str, *, attempt: int) -> list[str]:
    """Return what an attempt published of calls."""
    redis: Any = harness.redis
    entries = await redis.xrange(f"nova:run:{run_id}:events", min=f"{attempt}-0")
    events = [event for _, fields in entries for _, event in json.loads(fields[FIELD])["e"]]
    return [event["status"] for event in events if event["type"] == "tool_status"]


@proves("tools.recorded")
async def test_a_subagents_call_is_not_taken_for_a_call_of_the_turn_with_the_same_id(
    database: Database, redis: Redis, settings: Settings
):
    async with model_server() as model, open_stage(database, redis, settings, model) as stage:
        helper = {"description": "Writes.", "prompt": "Write."}
        await stage.agent("lead", capabilities={"notes": {}}, subagents={"clerk": helper})
        note = calls(("note_create", {"title": "T", "content": "C"}))
        task = calls(("Task", {"agent": "clerk", "prompt": "Note it."}))
        run = await stage.run("go", note, task, note, says("Noted."), says("Done."), agent_id="lead")
        assert (run.status, run.text) == ("succeeded", "Done.")
        assert await database.fetchval("SELECT count(*) FROM notes") == 2
        assert len(await database.fetch("SELECT call_id FROM tool_calls WHERE status = 'completed'")) == 2
