"""What the model gets of a call that has no result of its own: what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.contracts.steps import INTERRUPTED, NOT_ANSWERED, NOT_PERMITTED_YET
from nova_workers.contracts.waits import Answer
from tests.integration.runs.waiting.test_waiting import _begin, _result_of, fleet, script  # pyright: ignore[reportPrivateUsage] - the room's own
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness

__all__ = ["fleet"]

_SAVE = {"name": "memory_save", "input": {"content": "Kept"}}
_ASK: dict[str, Any] = {"name": "ask_user", "input": {"question": "Tea?", "options": ["yes", "no"]}}


@pytest.mark.parametrize(("call", "known"), [(_SAVE, NOT_PERMITTED_YET), (_ASK, NOT_ANSWERED)])
@proves("engine.what-is-known")
async def test_a_canceled_wait_is_reported_as_what_it_was(fleet: Harness, call: dict[str, Any], known: str):
    run = await _begin(fleet, {"tool": call}, {"say": "never"}, agent_id="careful")
    assert await fleet.status(run.run_id) == "waiting"
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)
    await fleet.settle(*fleet.workers)
    assert await fleet.status(run.run_id) == "canceled"
    assert await _result_of(fleet, run.run_id) == ("interrupted", known)
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 0


@proves("engine.what-is-known")
async def test_a_permitted_call_that_never_began_is_reported_so(fleet: Harness):
    run = await _begin(fleet, {"tool": _SAVE}, {"say": "never"}, agent_id="careful")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)
    await fleet.settle(*fleet.workers)
    status, known = await _result_of(fleet, run.run_id)
    assert (status, "before this call began" in known) == ("interrupted", True)
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 0


@proves("engine.what-is-known")
async def test_a_call_whose_permission_was_not_asked_when_its_worker_died_is_asked_again(fleet: Harness):
    dying, heir = fleet.worker(), fleet.worker()
    dying.faults.plan("crash_before", "suspend")
    run = await fleet.submit(script({"tool": _SAVE}, {"say": "saved"}), agent_id="careful")
    await fleet.settle(dying)
    await dying.crash()
    await fleet.recover()
    await fleet.settle(heir)
    assert await fleet.status(run.run_id) == "waiting"
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(heir)
    assert (await fleet.run(run.run_id))["result_text"] == "saved"
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 1
    await check_any_time(fleet.database)


@pytest.mark.parametrize(
    ("call", "known"),
    [("forbidden_one", "This call was not permitted, and did not begin."), ("unknown_one", INTERRUPTED)],
)
@proves("engine.what-is-known")
async def test_a_death_before_the_step_is_committed_tells_a_refusal_from_an_interruption(
    fleet: Harness, call: str, known: str
):
    rules = {"approvals": [{"tool": "forbidden_*", "decision": "never"}]}
    await fleet.add_agent("strict", {"name": "strict", "engine": "scripted", "permissions": rules})
    dying, heir = fleet.worker(), fleet.worker()
    dying.faults.plan("crash_before", "commit_step")
    run = await fleet.submit(script({"tool": {"name": call, "input": {}}}, {"say": "done"}), agent_id="strict")
    await fleet.settle(dying)
    await dying.crash()
    await fleet.recover()
    await fleet.settle(heir)
    assert (await fleet.run(run.run_id))["result_text"] == "done"
    assert (await _result_of(fleet, run.run_id))[1].endswith(known)
