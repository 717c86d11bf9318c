"""What the events of a run tell of its text is what the ledger gets, also across attempts and failures."""

from __future__ import annotations

from typing import cast

import pytest

from nova_workers.base.keys import run_events
from nova_workers.client.run_text import RunText
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import StepRecord
from nova_workers.contracts.events import AssistantMessage, Restart, event_adapter
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.rules.turns.live import ToldText
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.streams.rules.wire import FIELD, decode
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.run_reader import committed_texts
from tests.support.harness.workers import Harness, Worker


async def told_by(harness: Harness, run_id: str, worker: Worker) -> list[JsonObject]:
    """Return the live events of a run, and check that a client has the ledger's text by them."""
    await worker.publisher.drain(5)
    entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", await harness.redis.xrange(run_events(run_id)))
    events = [live.event for _, entry in entries for live in decode(entry[FIELD])]
    text = RunText()
    for event in events:
        text.feed(event_adapter.validate_python(event))
    assert text.texts == await committed_texts(harness.database, run_id)
    return events


@proves("events.exact")
@pytest.mark.parametrize("canceled", [False, True])
async def test_a_committed_response_is_sent_again_by_the_attempt_that_continues_it(harness: Harness, canceled: bool):
    lost, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(lost, plan(["wait:a"], []), "a")
    await lost.publisher.drain(5)
    await lost.crash()
    if canceled:
        await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == ("canceled" if canceled else "succeeded")
    events = await told_by(harness, run.run_id, other)
    kinds = [event["type"] for event in events]
    again = kinds.index("stream_start", 1) + 1
    assert (kinds[again], events[again].get("text"), events[again].get("step")) == ("assistant_message", "Step 0. ", 0)


@proves("events.exact")
async def test_text_of_an_attempt_that_was_lost_is_void_if_no_attempt_continues_it(harness: Harness):
    lost, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(lost, plan(doors={0: "thinking"}), "thinking")
    await lost.publisher.drain(5)
    await lost.crash()
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await harness.recover()
    await harness.settle(other)
    kinds = [event["type"] for event in await told_by(harness, run.run_id, other)]
    assert "token" in kinds
    assert kinds[-2:] == ["stream_start", "stream_end"]


async def test_the_text_of_a_step_that_waited_is_not_sent_again(harness: Harness):
    worker = harness.worker()
    run = await harness.submit(plan(["ask:Which?"], []))
    await harness.settle(worker)
    await harness.waiting.answer(harness.tenant_id, run.run_id, None, Answer(text="This"))
    await harness.settle(worker)
    events = await told_by(harness, run.run_id, worker)
    assert [event["text"] for event in events if event["type"] == "assistant_message"] == ["Step 0. "]
    assert [event["index"] for event in events if event["type"] == "step"] == [0, 0]


@pytest.mark.parametrize(
    ("told", "committed", "correction"),
    [
        (["Whole ", "text"], "Whole text", None),
        (["Half"], "Half a text", AssistantMessage(text="Half a text", step=0)),
        (["Not stored"], None, Restart()),
        ([], None, None),
    ],
)
def test_followers_get_a_correction_only_if_their_text_differs(
    told: list[str], committed: str | None, correction: AssistantMessage | Restart | None
):
    text = ToldText(Journal((), 1))
    for piece in told:
        text.add(piece)
    step = None if committed is None else StepRecord(0, (Message("assistant", (text_block(committed),)),))
    assert text.correction(step) == correction
    assert text.correction(step) is None, "once"
