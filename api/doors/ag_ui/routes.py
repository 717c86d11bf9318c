"""``/ag-ui``: an endpoint per agent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ag_ui.core import MessagesSnapshotEvent, RunFinishedEvent, RunFinishedSuccessOutcome, StateSnapshotEvent
from fastapi import APIRouter, Response

from nova_workers.base.errors import Conflict, Gone, IllegalTransition, InvalidInput, NotFound, missing
from nova_workers.contracts.bodies import is_one_line
from nova_workers.contracts.http.wire import OnBusy, RunView, ThreadView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.thread_state import is_same
from nova_workers.contracts.waits import RunAnswer
from nova_workers.domain.runs.rules.submit import MakeThread
from nova_workers.domain.runs.rules.waiting import Within

from ...json_body import StrictRoute
from ...openapi import EVENT_STREAM
from ...params import AgentIdPath
from ..items import Item, QuestionItem, ToolCallItem
from ..questions import outside_waits
from ..service import Door, SendingDoor
from .conversations import missed_messages
from .inputs import (
    AgentInput,
    Given,
    answer_of,
    given_input,
    in_terms_of_the_protocol,
    offered_state,
    past_of,
    run_of,
    sent_message,
)
from .parts import first_open_step, interrupt_id, open_asks
from .parts import run_of as run_of_message
from .stamps import stamped, version_of
from .writer import PartWriter, Request, frames_of, started

router = APIRouter(prefix="/ag-ui", route_class=StrictRoute, include_in_schema=False)

_MOST_LABEL_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A request, and what is new in it."""

    door: Door
    agent_id: str
    body: AgentInput
    given: Given
    key: RequestKey | None

    def writer(self, *, first_step: int = 0, is_new_thread: bool = False) -> PartWriter:
        """Return the writer of the response."""
        request = Request(
            thread_id=self.body.thread_id,
            run_id=self.body.run_id,
            parent_run_id=self.body.parent_run_id,
            held=self.body.messages,
            state=self.body.state,
            left_out=self.given.left_out,
        )
        return PartWriter(self.door, request, first_step=first_step, is_new_thread=is_new_thread)


@router.post("/{agent_id}")
async def run_agent(agent_id: AgentIdPath, body: AgentInput, door: SendingDoor) -> Response:
    """Run an agent: with what the person says, or with what the run that the client has was waiting for."""
    given = given_input(body)
    key = door.key(f"{body.thread_id}\0{body.run_id}", sent_message(body))
    exchange = _Exchange(door, agent_id, body, given, key)
    earlier = await door.earlier(key)
    if earlier is not None:
        return await door.follow(earlier, exchange.writer())
    if given.results or given.answers:
        return await _continue(exchange)
    if given.message:
        return await _submit(exchange)
    if any(message.role == "user" for message in body.messages[-1:]):
        raise InvalidInput("messages: the last one has nothing that an agent can read.", field="messages")
    return await _join(exchange)


async def _submit(exchange: _Exchange) -> Response:
    """Send what the person says to the thread, or after the run with which the client's history ends."""
    door, agent_id, body = exchange.door, exchange.agent_id, exchange.body
    thread = await _thread_of(door, agent_id, body)
    if thread is None:
        try:
            return await _begin(exchange)
        except Conflict as error:
            thread = await _thread_of(door, agent_id, body) if error.fields.get("field") == "label" else None
            if thread is None:
                raise
            # A concurrent request made it.
    parent = None if body.parent_run_id is None else await _parent_of(exchange, is_new_thread=False)
    if parent is not None:
        return await _send(exchange, door.after(parent))
    await _refuse_while_asking(door, thread)
    return await _send(exchange, door.in_thread(thread.id))


async def _begin(exchange: _Exchange) -> Response:
    """Send what begins the thread of a client's id: a branch of the conversation that it has, or a new one.

    Raises:
        Conflict: A concurrent request made the thread; then ``fields['field']`` is ``label``.
    """
    door, agent_id, body = exchange.door, exchange.agent_id, exchange.body
    label = _label(agent_id, body.thread_id)
    parent = await _parent_of(exchange, is_new_thread=True)
    if parent is not None:
        return await _send(exchange, door.after(parent, label=label))
    make_thread = await door.with_past(agent_id, past_of(body.messages), label=label)
    try:
        return await _send(exchange, make_thread, is_new_thread=True)
    except NotFound:
        # A deleted agent is named as such.
        await door.agent(agent_id)
        raise


async def _send(
    exchange: _Exchange, make_thread: MakeThread, *, on_busy: OnBusy = "enqueue", is_new_thread: bool = False
) -> Response:
    """Send the message with the state that the client has: the thread, both and the run are there, or none of them."""
    door = exchange.door
    message = run_of(exchange.body, exchange.given.message, on_busy)
    offered = offered_state(exchange.body)
    if offered is not None:
        make_thread = door.with_state(make_thread, offered)
    writer = exchange.writer(is_new_thread=is_new_thread)
    try:
        return await door.submit_and_follow(message, lambda _: writer, key=exchange.key, make_thread=make_thread)
    except InvalidInput as error:
        raise in_terms_of_the_protocol(error) from error


async def _continue(exchange: _Exchange) -> Response:
    """Answer what a part of a run ended with, and respond with the next part."""
    door, body, given = exchange.door, exchange.body, exchange.given
    if given.message and given.answers:
        raise InvalidInput("messages: answer the interrupts first, and send a message afterwards.", field="messages")
    run, items = await _asking_run(exchange)
    step = _step_asked(items, given)
    _refuse_partial(items, given, step)
    answers = _answers(items, exchange)
    offered = offered_state(body)
    within = None if offered is None else door.offering(run.thread_id, offered)
    await _give_results(exchange, run.id, within)
    await _answer(door, run.id, answers, within)
    if given.message:
        # The person says something else: the agent has the results, and what it would have said to them is not awaited.
        return await _send(exchange, door.in_thread(run.thread_id), on_busy="interrupt")
    return await door.follow(run.id, exchange.writer(first_step=step + 1))


async def _give_results(exchange: _Exchange, run_id: str, within: Within | None) -> None:
    given = exchange.given
    if not given.results:
        return
    try:
        await exchange.door.give(run_id, results=[result for _, result in given.results], within=within)
    except IllegalTransition:
        if not given.message:
            raise
    except InvalidInput as error:
        raise InvalidInput(str(error), field="messages") from error


async def _asking_run(exchange: _Exchange) -> tuple[RunView, Sequence[Item]]:
    door, given = exchange.door, exchange.given
    asked = [each for each, _ in [*given.results, *given.answers]]
    run_ids = {each.run_id for each in asked}
    if len(run_ids) > 1:
        raise InvalidInput("messages: all calls and interrupts that are answered must be of one run.", field="messages")
    run = await door.run(asked[0].run_id)
    if run.agent_id != exchange.agent_id or not await _is_named(exchange, await door.thread(run.thread_id)):
        raise missing("run", run.id)
    return run, await door.items(run.id)


async def _is_named(exchange: _Exchange, thread: ThreadView) -> bool:
    """Return whether a thread is the one that a request names, or a branch of it that has no name of its own."""
    label = _label(exchange.agent_id, exchange.body.thread_id)
    while exchange.body.thread_id != thread.id and thread.label != label:
        if thread.label is not None or thread.forked_from_thread_id is None:
            return False
        thread = await exchange.door.thread(thread.forked_from_thread_id)
    return True


def _step_asked(items: Sequence[Item], given: Given) -> int:
    """Return the step that is answered."""
    calls, waits = {each.name for each, _ in given.results}, {each.name for each, _ in given.answers}
    steps = {
        item.step
        for item in items
        if (isinstance(item, ToolCallItem) and item.for_caller and item.call_id in calls)
        or (isinstance(item, QuestionItem) and item.id in waits)
    }
    if not steps:
        raise InvalidInput(
            "messages: the run has no such calls for its client, and no such interrupts.", field="messages"
        )
    return max(steps)


def _refuse_partial(items: Sequence[Item], given: Given, step: int) -> None:
    """Refuse a request that leaves something open that the same part of the run asked."""
    named = {each.name for each, _ in [*given.results, *given.answers]}
    for item in open_asks(items):
        if item.step == step and (item.id if isinstance(item, QuestionItem) else item.call_id) not in named:
            if isinstance(item, QuestionItem):
                raise InvalidInput(f"resume: the interrupt {interrupt_id(item)!r} has no entry.", field="resume")
            raise InvalidInput(f"messages: the call {item.id!r} has no message of a tool.", field="messages")


def _answers(items: Sequence[Item], exchange: _Exchange) -> list[RunAnswer | None]:
    """Return the answers to questions that are open; of one that was answered before, the first answer counts."""
    questions = {item.id: item for item in items if isinstance(item, QuestionItem) and item.is_open}
    entries = list(exchange.body.resume or ())
    return [
        answer_of(questions[asked.name], entry, f"resume.{entries.index(entry)}", by=exchange.door.caller.key_name)
        for asked, entry in exchange.given.answers
        if asked.name in questions
    ]


async def _answer(door: Door, run_id: str, answers: Sequence[RunAnswer | None], within: Within | None) -> None:
    for answer in answers:
        if answer is None:
            await door.cancel(run_id)
            return
        try:
            await door.answer(run_id, answer, within=within)
        except InvalidInput as error:
            raise InvalidInput(str(error), field="resume") from error
        except IllegalTransition:
            # Another answer was first.
            continue


async def _join(exchange: _Exchange) -> Response:
    """Respond with what the client lacks of the conversation, and with what its run does now."""
    door, agent_id, body = exchange.door, exchange.agent_id, exchange.body
    thread = await _thread_of(door, agent_id, body)
    if thread is None:
        await door.agent(agent_id)
    elif (run := await door.open_run(thread.id)) is not None:
        first_step = first_open_step(await door.items(run.id))
        return await door.follow(run.id, exchange.writer(first_step=first_step))
    events: list[Any] = [started(body.thread_id, body.run_id, body.parent_run_id)]
    if thread is not None:
        state = await door.thread_state(thread.id)
        if state.version and not is_same(state.state, body.state):
            events.append(StateSnapshotEvent(snapshot=state.state))
        missed = await missed_messages(door, thread.id, None, 0, body.messages)
        messages = body.messages if missed is None else missed
        if missed is not None or (messages and state.version and state.version != version_of(messages)):
            events.append(MessagesSnapshotEvent(messages=stamped(messages, state.version)))
    outcome = RunFinishedSuccessOutcome()
    events.append(RunFinishedEvent(thread_id=body.thread_id, run_id=body.run_id, outcome=outcome))
    content = frames_of(events, door.state.services.clock.now().timestamp())
    return Response(content, media_type=EVENT_STREAM)


async def _thread_of(door: Door, agent_id: str, body: AgentInput) -> ThreadView | None:
    """Return the thread with an id of ours, or the one that has the client's id as its label; None for a new one."""
    if not body.thread_id.startswith("thr_"):
        return await door.labelled_thread(_label(agent_id, body.thread_id))
    thread = await door.thread(body.thread_id)
    if thread.agent_id != agent_id:
        await door.agent(agent_id)
        raise InvalidInput(f"threadId: the thread is of the agent {thread.agent_id!r}.", field="threadId")
    return thread


async def _parent_of(exchange: _Exchange, *, is_new_thread: bool) -> str | None:
    """Return the run that a branch continues: the last one of the client's history, or else the parent that it names.

    None if there is none of the agent, or for a thread that exists, none in that.
    """
    door, agent_id, body = exchange.door, exchange.agent_id, exchange.body
    names = [message.id for message in body.messages if message.role in {"assistant", "tool"}]
    found = next((run_id for name in reversed(names) if (run_id := run_of_message(name)) is not None), None)
    if found is None and body.parent_run_id is not None and body.parent_run_id.startswith("run_"):
        found = body.parent_run_id
    if found is None:
        return None
    try:
        run = await door.run(found)
        thread = await door.thread(run.thread_id)
        is_there = is_new_thread or await _is_named(exchange, thread)
    except (NotFound, Gone):
        return None
    return run.id if is_there and run.agent_id == agent_id and run.turn_id is not None else None


async def _refuse_while_asking(door: Door, thread: ThreadView) -> None:
    """Refuse a message while the thread's run asks its client or a person.

    Raises:
        Conflict: It does. The client answers first.
    """
    if thread.active_run_id is None or thread.waiting_for is None:
        return
    run = await door.run(thread.active_run_id)
    if outside_waits(run):
        raise Conflict(
            f"The conversation waits for {thread.waiting_for}. Answer with `resume`, or with messages of tools; a "
            "request without messages shows what is asked.",
            run_id=run.id,
        )


def _label(agent_id: str, thread_id: str) -> str:
    """Return the label of the thread that a client knows by an id of its own."""
    label = f"ag-ui/{agent_id}/{thread_id}"
    if is_one_line(label) and len(label) <= _MOST_LABEL_CHARS:
        return label
    return f"ag-ui/{agent_id}/{hashlib.sha256(thread_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
