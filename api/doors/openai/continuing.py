"""What a request continues: a conversation, a response that has ended, or one that asked its caller for something."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from nova_workers.base.errors import Gone, IllegalTransition, InvalidInput, NotFound
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool, RunAnswer, ToolResult

from ..items import Item, QuestionItem, ToolCallItem
from ..service import Door
from .bodies import CreateResponse
from .inputs import Approval, Given, given_input, referenced
from .parts import answer, answers_to, run_and_call_of
from .responses import ResponseId, no_approval_request, part_of, run_and_wait_of, run_of_item, said_in, thread_of

_MOST_TURNS: Final = 100
"""Longest conversation, in turns, that is compared with a client's history."""
_MOST_REFERENCED: Final = 100
"""Most runs whose items an input may name."""


class Begin(NamedTuple):
    """Where a message goes: a thread, behind a run, or a new thread."""

    thread_id: str | None = None
    after_run_id: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether it begins a conversation."""
        return self.thread_id is None and self.after_run_id is None


@contextmanager
def naming_previous(previous_response_id: str | None) -> Generator[None]:
    """Name a response that a request continues and that is not there as the client does, and say what to do.

    Raises:
        NotFound: Its run or its conversation is unknown, deleted or purged.
    """
    try:
        yield
    except (NotFound, Gone) as error:
        if previous_response_id is None or error.fields.get("kind") not in {"run", "thread"}:
            raise
        raise NotFound(
            f"previous_response_id: the response {previous_response_id!r:.80} is unknown, was deleted, or is no longer "
            "kept: one with `store: false` is kept for 24 hours. Send the conversation as input.",
            kind="response",
            id=previous_response_id[:80],
            field="previous_response_id",
        ) from error


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
    if not own or page.goes_on_at is not None:
        return None
    documents = [document for document, _ in said_in(page.items[: own[-1] + 1])]
    try:
        known = given_input(documents)
    except InvalidInput:
        return None
    return run_id if known.history == given.history and not known.message and not known.results else None


async def answered_part(door: Door, body: CreateResponse, given: Given, key: RequestKey | None) -> ResponseId | None:
    """Give a run what it asked for, if the request has that, and return the response that continues it.

    All that a request has is given, or nothing is: what it gives and what it leaves out is checked before.

    Args:
        door: The service, for the request's caller.
        body: The request.
        given: Its input.
        key: Of the request: one that is repeated with it is known by `Door.earlier`.

    Raises:
        NotFound: There is no such response, call or request for permission.
        IllegalTransition: It was given something else before.
        InvalidInput: The request has only a part of what the run needs, or more.
    """
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidInput("Give previous_response_id or conversation, not both.", field="conversation")
    if given.results or given.approvals:
        return await _give(door, body, given, key)
    return await _answer(door, body, given, key)


async def resolved(door: Door, items: str | Sequence[JsonObject] | None) -> str | Sequence[JsonObject] | None:
    """Return an input with the items themselves in place of references to them.

    Raises:
        NotFound: There is no such item.
        InvalidInput: They are of too many runs.
    """
    wanted = referenced(items)
    if not wanted or not items or isinstance(items, str):
        return items
    runs = {run_id for name in wanted if (run_id := run_of_item(name)) is not None}
    if len(runs) > _MOST_REFERENCED:
        raise InvalidInput(
            f"input has references to items of {len(runs)} responses; at most {_MOST_REFERENCED} may be named at once. "
            "Name the last with previous_response_id.",
            field="input",
        )
    known = {document["id"]: document for items in await door.items_of_runs(runs) for document, _ in said_in(items)}
    if unknown := next((name for name in wanted if name not in known), None):
        raise NotFound(f"There is no item {unknown!r:.80}.", kind="item", id=unknown[:80], field="input")
    return [known[str(item["id"])] if item.get("type") == "item_reference" else item for item in items]


async def _give(door: Door, body: CreateResponse, given: Given, key: RequestKey | None) -> ResponseId | None:
    """Give a run results of its calls, and decisions about calls that need permission.

    None if no run waits for the results, and the request has the conversation itself. Decisions are never passed over.
    """
    may_begin = bool(given.history) and not given.approvals
    calls = [run_and_call_of(result.tool_call_id) for result in given.results]
    decided = _decided(given.approvals)
    run_ids = {call[0] for call in calls if call is not None} | {run_id for run_id, _ in decided}
    if None in calls or len(run_ids) != 1:
        if may_begin:
            return None
        raise InvalidInput(
            "input has a function_call_output whose call_id is none of a response's, or outputs and decisions for "
            "several responses. Send those of one response, with each call_id as it was given.",
            field="input",
        )
    run_id = run_ids.pop()
    if given.message:
        if may_begin or (not calls and await _are_decided(door, run_id, decided)):
            return None
        raise InvalidInput(
            "Send the results of calls and decisions first, and a message when they are answered.", field="input"
        )
    results = [
        result.model_copy(update={"tool_call_id": call[1]})
        for result, call in zip(given.results, calls, strict=True)
        if call is not None
    ]
    try:
        run = await door.run(run_id)
        if may_begin and body.model and body.model != run.agent_id:
            return None
        _check_addressed(body, run)
        step = _asked_step(await door.items(run_id), results, decided)
        if results:
            _refuse_partial(run, results)
        made = await door.give(
            run_id,
            results=results,
            answers=[_decision(wait_id, approval) for (_, wait_id), approval in decided.items()],
            key=key,
            made=str(ResponseId(run_id, step + 1)),
        )
    except (NotFound, Gone, IllegalTransition):
        # The client has the conversation, and goes on from another place of it, or after the run was canceled.
        if may_begin and body.previous_response_id is None:
            return None
        raise
    return ResponseId.made(made)


def _decided(approvals: Sequence[Approval]) -> dict[tuple[str, str], Approval]:
    """Return decisions by their runs and waits.

    Raises:
        NotFound: One is about no request for permission.
        InvalidInput: There are two about one request.
    """
    decided: dict[tuple[str, str], Approval] = {}
    for approval in approvals:
        first = decided.setdefault(run_and_wait_of(approval), approval)
        if (first.approve, first.reason) != (approval.approve, approval.reason):
            raise InvalidInput(
                f"{approval.field} is another decision than {first.field} about the same call.", field=approval.field
            )
    return decided


def _decision(wait_id: str, approval: Approval) -> RunAnswer:
    reason = f"{approval.field}.reason"
    return answer(reason, wait_id=wait_id, approve=approval.approve, text=approval.reason or None)


async def _are_decided(door: Door, run_id: str, decided: Mapping[tuple[str, str], Approval]) -> bool:
    """Return whether nothing waits for decisions any more: they are of the conversation before."""
    names = {wait_id for _, wait_id in decided}
    return all(
        not item.is_open for item in await door.items(run_id) if isinstance(item, QuestionItem) and item.id in names
    )


def _check_addressed(body: CreateResponse, run: RunView) -> None:
    """Refuse a request that names another response, conversation or agent than those of the run."""
    previous, thread_id = body.previous_response_id, _conversation_of(body)
    if previous is not None and ResponseId.parse(previous).run_id != run.id:
        raise InvalidInput(f"Response {previous!r:.80} has not asked for this.", field="previous_response_id")
    if thread_id is not None and thread_id != run.thread_id:
        raise InvalidInput("The response that asked for this is in another conversation.", field="conversation")
    _refuse_other_agent(body, run.agent_id)


def _asked_step(
    items: Sequence[Item], results: Sequence[ToolResult], decided: Mapping[tuple[str, str], Approval]
) -> int:
    """Return the last step that asked for what a request gives."""
    steps = {item.call_id: item.step for item in items if isinstance(item, ToolCallItem)}
    asked = {
        item.id: item.step for item in items if isinstance(item, QuestionItem) and isinstance(item.request, AskApproval)
    }
    for result in results:
        if result.tool_call_id not in steps:
            raise NotFound("No response has made these calls.", kind="call", id=result.tool_call_id, field="input")
    for (_, wait_id), approval in decided.items():
        if wait_id not in asked:
            raise no_approval_request(approval)
    return max([*(steps[result.tool_call_id] for result in results), *(asked[wait_id] for _, wait_id in decided)])


def _refuse_partial(run: RunView, results: Sequence[ToolResult]) -> None:
    """Refuse some of the results that a run waits for: it would go on waiting."""
    given = {result.tool_call_id for result in results}
    waiting = [wait.tool_call_id for wait in run.waits if isinstance(wait.request, CallClientTool)]
    if lacking := [call_id for call_id in waiting if call_id not in given]:
        raise InvalidInput(
            f"input has no output of the call {lacking[0]!r:.80}; send those of all calls of a response together.",
            field="input",
        )


async def _answer(door: Door, body: CreateResponse, given: Given, key: RequestKey | None) -> ResponseId | None:
    """Answer the questions with which a response ended. None if it asked none, or if they have another answer."""
    run_id = await _asking_run(door, body)
    if run_id is None or not given.text or given.history:
        return None
    items = await door.items(run_id)
    if body.previous_response_id is not None:
        asked = part_of(items, ResponseId.parse(body.previous_response_id).first_step)[0]
    else:
        asked = [item for item in items if isinstance(item, QuestionItem) and item.is_open]
    questions = [item for item in asked if isinstance(item, QuestionItem) and isinstance(item.request, AskUser)]
    due = [question for question in questions if question.is_open] or questions
    is_text = all(block.get("type") == "text" for block in given.message)
    if not due or not (due[0].is_open or is_text):
        return None
    if not is_text:
        raise InvalidInput("input answers a question, which takes text alone.", field="input")
    answers = answers_to(due, given.text, "input")
    rest = ResponseId(run_id, due[-1].step + 1)
    try:
        return ResponseId.made(await door.give(run_id, answers=answers, key=key, made=str(rest)))
    except IllegalTransition:
        return None
    except InvalidInput as error:
        raise InvalidInput(f"input: {error.message}", field="input") from error


async def _asking_run(door: Door, body: CreateResponse) -> str | None:
    """Return the run that may have asked what a message answers."""
    if body.previous_response_id is not None:
        return ResponseId.parse(body.previous_response_id).run_id
    thread_id = _conversation_of(body)
    if thread_id is None:
        return None
    thread = await door.thread(thread_id)
    return thread.active_run_id if thread.waiting_for else None


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
