"""What a request continues: a conversation, a response that has ended, or one that asked its caller for something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from nova_workers.base.errors import Gone, IllegalTransition, InvalidInput, NotFound
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import AskUser, CallClientTool, RunAnswer, ToolResult

from ..items import Item, QuestionItem, ToolCallItem, ToolResultItem
from ..service import Door
from .bodies import CreateResponse
from .inputs import Given, given_input, referenced
from .parts import run_and_call_of
from .responses import ResponseId, item_documents, run_and_wait_of, run_of_item, thread_of

_MOST_TURNS: Final = 100
"""Longest conversation, in turns, that is compared with a client's history."""


class Begin(NamedTuple):
    """Where a message goes: a thread, behind a run, or a new thread."""

    thread_id: str | None = None
    after_run_id: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether it begins a conversation."""
        return self.thread_id is None and self.after_run_id is None


async def begin_of(door: Door, body: CreateResponse, given: Given) -> Begin:
    """Return where a request's message goes.

    Raises:
        NotFound: There is no such response or conversation.
        InvalidInput: It names two of them, or another agent than theirs, or says what they have already.
    """
    if body.previous_response_id is None and body.conversation is None:
        return Begin()
    if given.history:
        raise InvalidInput(
            "input has what was said before, and the conversation has that already. Give only what is new.",
            field="input",
        )
    if body.previous_response_id is not None:
        run = await door.run(ResponseId.parse(body.previous_response_id).run_id)
        _refuse_other_agent(body, run.agent_id)
        return Begin(after_run_id=run.id)
    thread_id = _conversation_of(body)
    assert thread_id is not None  # noqa: S101 - it is one of the two
    _refuse_other_agent(body, (await door.thread(thread_id)).agent_id)
    return Begin(thread_id)


async def known_run(door: Door, body: CreateResponse, given: Given) -> str | None:
    """Return the run with which a client's own history ends, if the history is the one of its conversation.

    Then the message continues there, with all that the agent did beside. A client may have changed what it sends, so
    each message, call and result is compared.
    """
    run_id = None if given.last_id is None else run_of_item(given.last_id)
    if run_id is None:
        return None
    try:
        run = await door.run(run_id)
        thread = await door.thread(run.thread_id)
        if run.status not in ENDED_RUNS or run.agent_id != body.model or (body.store is False and not thread.ephemeral):
            return None
        page = await door.items_of_thread(run.thread_id, turns=_MOST_TURNS)
    except (NotFound, Gone):
        return None
    own = [at for at, item in enumerate(page.items) if item.run_id == run_id]
    if not own or page.below_depth is not None:
        return None
    documents = [document for item in page.items[: own[-1] + 1] for document in item_documents(item)]
    try:
        known = given_input(documents)
    except InvalidInput:
        return None
    return run_id if known.history == given.history and not known.message and not known.results else None


async def answered_part(door: Door, body: CreateResponse, given: Given) -> ResponseId | None:
    """Give a run what it asked for, if the request has that, and return the response that continues it.

    Raises:
        NotFound: There is no such response, call or request for permission.
        IllegalTransition: It was given something else before.
        InvalidInput: The request has only a part of what the run needs, or more.
    """
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidInput("Give previous_response_id or conversation, not both.", field="conversation")
    if given.approvals:
        return await _decide(door, given)
    if given.results:
        return await _give(door, body, given)
    return await _answer(door, body, given)


async def resolved(door: Door, items: str | Sequence[JsonObject] | None) -> str | Sequence[JsonObject] | None:
    """Return an input with the items themselves in place of references to them.

    Raises:
        NotFound: There is no such item.
    """
    wanted = referenced(items)
    if not wanted or not items or isinstance(items, str):
        return items
    runs = dict.fromkeys(f"run_{name.partition('_')[2].partition('_')[0]}" for name in wanted)
    known = {
        document["id"]: document
        for run_id in runs
        for item in await door.items(run_id)
        for document in item_documents(item)
    }
    if unknown := next((name for name in wanted if name not in known), None):
        raise NotFound(f"There is no item {unknown!r:.80}.", kind="item", id=unknown[:80], field="input")
    return [known[str(item["id"])] if item.get("type") == "item_reference" else item for item in items]


async def _decide(door: Door, given: Given) -> ResponseId:
    """Permit or refuse calls of one run."""
    part: ResponseId | None = None
    for approval in given.approvals:
        run_id, wait_id = run_and_wait_of(approval.request_id)
        asked = [item for item in await door.items(run_id) if isinstance(item, QuestionItem) and item.id == wait_id]
        if not asked:
            raise NotFound(
                f"There is no request for permission {approval.request_id!r:.80}.",
                kind="approval request",
                id=approval.request_id[:80],
                field="input",
            )
        part = ResponseId(run_id, asked[0].step + 1)
        if asked[0].is_open:
            await _answer_wait(door, run_id, wait_id=wait_id, approve=approval.approve, text=approval.reason or None)
    assert part is not None  # noqa: S101 - there is at least one
    return part


async def _give(door: Door, body: CreateResponse, given: Given) -> ResponseId | None:
    """Give a run results of its calls. None if no run waits for them, and the request has the conversation itself."""
    calls = [run_and_call_of(result.tool_call_id) for result in given.results]
    run_ids = {call[0] for call in calls if call is not None}
    if None in calls or len(run_ids) != 1:
        if given.history:
            return None
        raise InvalidInput(
            "input has a function_call_output whose call_id is none of a response's. Send the call_id as it was given.",
            field="input",
        )
    if given.message:
        if given.history:
            return None
        raise InvalidInput("Send the results of calls first, and a message when they are answered.", field="input")
    run_id = run_ids.pop()
    _check_previous(body, run_id)
    results = [
        result.model_copy(update={"tool_call_id": call[1]})
        for result, call in zip(given.results, calls, strict=True)
        if call is not None
    ]
    try:
        step = _asked_step(await door.items(run_id), results)
        _refuse_partial(await door.run(run_id), results)
        await door.give_results(run_id, results)
    except (NotFound, Gone, IllegalTransition):
        # The client has the conversation, and goes on from another place of it, or after the run was canceled.
        if given.history and body.previous_response_id is None:
            return None
        raise
    return ResponseId(run_id, step + 1)


def _check_previous(body: CreateResponse, run_id: str) -> None:
    previous = body.previous_response_id
    if previous is not None and ResponseId.parse(previous).run_id != run_id:
        raise InvalidInput(f"Response {previous!r:.80} has not made these calls.", field="previous_response_id")


def _asked_step(items: Sequence[Item], results: Sequence[ToolResult]) -> int:
    named = {result.tool_call_id for result in results}
    steps = [item.step for item in items if isinstance(item, ToolCallItem) and item.call_id in named]
    if not steps:
        raise NotFound("No response has made these calls.", kind="call", id=next(iter(named)), field="input")
    return max(steps)


def _refuse_partial(run: RunView, results: Sequence[ToolResult]) -> None:
    """Refuse some of the results that a run waits for: it would go on waiting."""
    given = {result.tool_call_id for result in results}
    waiting = [wait.tool_call_id for wait in run.waits if isinstance(wait.request, CallClientTool)]
    if lacking := [call_id for call_id in waiting if call_id not in given]:
        raise InvalidInput(
            f"input has no output of the call {lacking[0]!r:.80}; send those of all calls of a response together.",
            field="input",
        )


async def _answer(door: Door, body: CreateResponse, given: Given) -> ResponseId | None:
    """Answer the question with which a response ended. None if it asked none."""
    run_id = await _asking_run(door, body)
    if run_id is None or not given.text:
        return None
    items = await door.items(run_id)
    asked = [item for item in items if isinstance(item, QuestionItem) and isinstance(item.request, AskUser)]
    if body.previous_response_id is not None:
        first = ResponseId.parse(body.previous_response_id).first_step
        asked = [item for item in asked if item.step >= first][:1]
    if not asked:
        return None
    question = asked[-1]
    if question.is_open:
        await _answer_wait(door, run_id, wait_id=question.id, text=given.text)
    elif not _is_answer(items, question, given.text):
        return None
    return ResponseId(run_id, question.step + 1)


async def _answer_wait(door: Door, run_id: str, **fields: Any) -> None:
    try:
        answer = RunAnswer(**fields)
    except ValidationError as error:
        raise InvalidInput(f"input: {error.errors()[0]['msg']}.", field="input") from error
    await door.answer(run_id, answer)


async def _asking_run(door: Door, body: CreateResponse) -> str | None:
    """Return the run that may have asked what a message answers."""
    if body.previous_response_id is not None:
        return ResponseId.parse(body.previous_response_id).run_id
    thread_id = _conversation_of(body)
    if thread_id is None:
        return None
    thread = await door.thread(thread_id)
    return thread.active_run_id if thread.waiting_for else None


def _is_answer(items: Sequence[Item], question: QuestionItem, text: str) -> bool:
    """Return whether a question was answered with a text: then the request is repeated."""
    results = [item for item in items if isinstance(item, ToolResultItem) and item.call_id == question.call_id]
    return any(text_of(result.content) == text for result in results)


def _conversation_of(body: CreateResponse) -> str | None:
    if body.conversation is None:
        return None
    return thread_of(body.conversation if isinstance(body.conversation, str) else body.conversation.id)


def _refuse_other_agent(body: CreateResponse, agent_id: str) -> None:
    if body.model and body.model != agent_id:
        raise InvalidInput(
            f"The conversation is with the agent {agent_id!r}, and keeps it. Name that as the model, or leave it out.",
            field="model",
        )
