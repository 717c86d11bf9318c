"""``/ag-ui``: an endpoint per agent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from ag_ui.core import MessagesSnapshotEvent, RunFinishedEvent, RunFinishedSuccessOutcome, StateSnapshotEvent
from fastapi import APIRouter, Path, Response
from pydantic import ValidationError

from nova_workers.base.errors import Conflict, IllegalTransition, InvalidInput, NotFound, missing
from nova_workers.base.vocabulary import EXTERNAL_WAITS
from nova_workers.contracts.bodies import is_one_line
from nova_workers.contracts.http.thread_states import ThreadStateReplace
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate, ThreadView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import RunAnswer

from ...json_body import StrictRoute
from ...openapi import EVENT_STREAM
from ..items import Item, QuestionItem, ToolCallItem
from ..service import Door, SendingDoor
from .conversations import missed_messages
from .inputs import AgentInput, Given, answer_of, given_input, in_terms_of_the_protocol, past_of, run_of, sent_message
from .parts import first_open_step, interrupt_id, open_asks
from .parts import run_of as run_of_message
from .writer import PartWriter, Request, frames_of, started

router = APIRouter(prefix="/ag-ui", route_class=StrictRoute, include_in_schema=False)

_MOST_LABEL_CHARS: Final = 200
AgentPath = Annotated[str, Path(max_length=80)]


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
async def run_agent(agent_id: AgentPath, body: AgentInput, door: SendingDoor) -> Response:
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
    door, agent_id, body, said = exchange.door, exchange.agent_id, exchange.body, exchange.given.message
    thread = await _thread_of(door, agent_id, body)
    parent = await _parent_of(door, agent_id, body, is_new=thread is None)
    if parent is not None:
        message = run_of(body, said, None, "enqueue")
        return await _send(exchange, message, exchange.writer(), after_run_id=parent)
    # Before a thread is made for what is refused.
    message = run_of(body, said, None if thread is None else thread.id, "enqueue")
    if thread is not None:
        await _refuse_while_asking(door, thread)
        await _adopt_state(door, thread.id, body)
        return await _send(exchange, message, exchange.writer())
    thread = await _new_thread(exchange)
    await _adopt_state(door, thread.id, body)
    message = message.model_copy(update={"thread_id": thread.id})
    return await _send(exchange, message, exchange.writer(is_new_thread=True))


async def _new_thread(exchange: _Exchange) -> ThreadView:
    """Make the thread of a client's id, with what was said elsewhere before."""
    body, label = exchange.body, _label(exchange.agent_id, exchange.body.thread_id)
    return await exchange.door.make_thread(exchange.agent_id, label=label, past=past_of(body.messages))


async def _send(
    exchange: _Exchange, message: StatelessRunCreate, writer: PartWriter, *, after_run_id: str | None = None
) -> Response:
    try:
        return await exchange.door.submit_and_follow(
            message, lambda _: writer, key=exchange.key, after_run_id=after_run_id
        )
    except InvalidInput as error:
        raise in_terms_of_the_protocol(error) from error


async def _continue(exchange: _Exchange) -> Response:
    """Answer what a part of a run ended with, and respond with the next part."""
    door, body, given = exchange.door, exchange.body, exchange.given
    if given.message and given.answers:
        raise InvalidInput("messages: answer the interrupts first, and send a message afterwards.", field="messages")
    run, items = await _asking_run(door, exchange.agent_id, given)
    step = _step_asked(items, given)
    _refuse_partial(items, given, step)
    answers = _answers(items, exchange)
    await _adopt_state(door, run.thread_id, body)
    await _give_results(exchange, run.id)
    await _answer(door, run.id, answers)
    if given.message:
        # The person says something else: the agent has the results, and what it would have said to them is not awaited.
        message = run_of(body, given.message, run.thread_id, "interrupt")
        return await _send(exchange, message, exchange.writer())
    return await door.follow(run.id, exchange.writer(first_step=step + 1))


async def _give_results(exchange: _Exchange, run_id: str) -> None:
    given = exchange.given
    if not given.results:
        return
    try:
        await exchange.door.give_results(run_id, [result for _, result in given.results])
    except IllegalTransition:
        if not given.message:
            raise
    except InvalidInput as error:
        raise InvalidInput(str(error), field="messages") from error


async def _asking_run(door: Door, agent_id: str, given: Given) -> tuple[RunView, Sequence[Item]]:
    asked = [each for each, _ in [*given.results, *given.answers]]
    run_ids = {each.run_id for each in asked}
    if len(run_ids) > 1:
        raise InvalidInput("messages: all calls and interrupts that are answered must be of one run.", field="messages")
    run = await door.run(asked[0].run_id)
    if run.agent_id != agent_id:
        raise missing("run", run.id)
    return run, await door.items(run.id)


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
        answer_of(questions[asked.name], entry, f"resume.{entries.index(entry)}")
        for asked, entry in exchange.given.answers
        if asked.name in questions
    ]


async def _answer(door: Door, run_id: str, answers: Sequence[RunAnswer | None]) -> None:
    for answer in answers:
        if answer is None:
            await door.cancel(run_id)
            return
        try:
            await door.answer(run_id, answer)
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
    elif thread.active_run_id is not None:
        first_step = first_open_step(await door.items(thread.active_run_id))
        return await door.follow(thread.active_run_id, exchange.writer(first_step=first_step))
    events: list[Any] = [started(body.thread_id, body.run_id, body.parent_run_id)]
    if thread is not None:
        state = await door.thread_state(thread.id)
        if state.version and state.state != body.state:
            events.append(StateSnapshotEvent(snapshot=state.state))
        missed = await missed_messages(door, thread.id, None, 0, body.messages)
        if missed is not None:
            events.append(MessagesSnapshotEvent(messages=missed))
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


async def _parent_of(door: Door, agent_id: str, body: AgentInput, *, is_new: bool) -> str | None:
    """Return the run that the message continues in a branch: where the client names a parent, or a new thread.

    It is the last run of the client's history. None if there is none of this agent.
    """
    if not is_new and body.parent_run_id is None:
        return None
    names = [message.id for message in body.messages if message.role in {"assistant", "tool"}]
    found = next((run_id for name in reversed(names) if (run_id := run_of_message(name)) is not None), None)
    if found is None and body.parent_run_id is not None and body.parent_run_id.startswith("run_"):
        found = body.parent_run_id
    if found is None:
        return None
    try:
        run = await door.run(found)
    except NotFound:
        return None
    return run.id if run.agent_id == agent_id and run.turn_id is not None else None


async def _refuse_while_asking(door: Door, thread: ThreadView) -> None:
    """Refuse a message while the thread's run asks its client or a person.

    Raises:
        Conflict: It does. The client answers first.
    """
    if thread.active_run_id is None or thread.waiting_for is None:
        return
    run = await door.run(thread.active_run_id)
    if any(wait.request.kind in EXTERNAL_WAITS for wait in run.waits):
        raise Conflict(
            f"The conversation waits for {thread.waiting_for}. Answer with `resume`, or with messages of tools; a "
            "request without messages shows what is asked.",
            run_id=run.id,
        )


async def _adopt_state(door: Door, thread_id: str, body: AgentInput) -> None:
    """Write the client's state, if it changed the version of the document that there is.

    Which version it has, its messages say. A change of an older one is dropped: the client gets the document.
    """
    if not isinstance(body.state, dict) or not body.state:
        return
    found = await door.thread_state(thread_id)
    if found.state == body.state or found.version != _version_seen(body):
        return
    try:
        change = ThreadStateReplace(state=body.state, version=found.version)
    except ValidationError as error:
        raise InvalidInput(f"state: {error.errors()[0]['msg']}.", field="state") from error
    await door.replace_thread_state(thread_id, change)


def _version_seen(body: AgentInput) -> int:
    seen = 0
    for message in body.messages:
        match message.metadata:
            case {"nova": {"stateVersion": int(version)}}:
                seen = max(seen, version)
            case _:
                pass
    return seen


def _label(agent_id: str, thread_id: str) -> str:
    """Return the label of the thread that a client knows by an id of its own."""
    label = f"ag-ui/{agent_id}/{thread_id}"
    if is_one_line(label) and len(label) <= _MOST_LABEL_CHARS:
        return label
    return f"ag-ui/{agent_id}/{hashlib.sha256(thread_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
