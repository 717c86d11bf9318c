"""``/openai/v1/chat/completions``: a client sends the whole chat each time, and it goes on in its thread.

The thread is found by the digest of what was said before. Where none is, because the chat was edited or took place
elsewhere, it is imported into a new thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Path, Response

from nova_workers.base.errors import Conflict, Gone, InvalidInput, NotFound
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import PastMessage, RunView, StatelessRunCreate
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import AFFIRMATIVE, AskApproval, RunAnswer
from nova_workers.domain.runs.rules.submit import MakeThread

from ...json_body import StrictRoute
from ..items import QuestionItem, ToolCallItem, ToolResultItem
from ..service import AnyDoor, Door, SendingDoor
from .chat import (
    CompletionId,
    completion_document,
    failure_document,
    finish_of,
    part_of,
    usage_of,
)
from .chat_bodies import CreateCompletion, Said, call_of, conversation_of, results_of, run_of
from .chat_history import ChatDigest, past_of
from .chat_writer import ChatWriter

router = APIRouter(prefix="/openai/v1/chat", route_class=StrictRoute, include_in_schema=False)

_RequestId = Annotated[str | None, Header(min_length=1, max_length=512)]
IdempotencyKey = Annotated[_RequestId, Header(alias="Idempotency-Key")]
ClientRequestId = Annotated[_RequestId, Header(alias="X-Client-Request-Id")]
ConversationId = Annotated[_RequestId, Header(alias="X-Conversation-Id")]
OpenWebUIChatId = Annotated[_RequestId, Header(alias="X-OpenWebUI-Chat-Id")]
CompletionPath = Annotated[str, Path(max_length=80)]


@router.post("/completions")
async def create_completion(
    body: CreateCompletion,
    door: SendingDoor,
    *,
    idempotency_key: IdempotencyKey = None,
    client_request_id: ClientRequestId = None,
    conversation_id: ConversationId = None,
    chat_id: OpenWebUIChatId = None,
) -> Response:
    """Send the last message of a chat to an agent, or results of calls to the run that waits for them."""
    chat = conversation_of(body)
    # Chats of other keys, agents and people of a front end never meet, though they begin with the same words.
    scope = (door.caller.key_id, body.model, body.user, body.safety_identifier, conversation_id or chat_id)
    whole = ChatDigest(scope, chat.past)
    before = whole.digest()
    whole.add([*chat.message, *chat.results])
    if chat.results:
        return await _respond(door, await _give_results(door, chat.results), body, whole)
    key = door.key(idempotency_key or client_request_id, body)
    run = run_of(body, chat)
    place = await door.find_place(before) if chat.past else None
    if place is not None:
        continued = CompletionId.parse(place)
        try:
            if continued.first_step:
                return await _respond(door, await _answer(door, continued, chat.message), body, whole)
            return await _submit(
                door, _without_agent(run), body, whole, key=key, make_thread=door.after(continued.run_id)
            )
        except (NotFound, Gone, Conflict):
            # It was deleted or purged meanwhile, or goes on in another way. What was said is here.
            pass
    past = past_of(chat.past)
    make_thread = await _importing(door, body, past) if past else None
    return await _submit(door, _without_agent(run) if past else run, body, whole, key=key, make_thread=make_thread)


@router.get("/completions/{completion_id}")
async def get_completion(completion_id: CompletionPath, door: AnyDoor) -> Response:
    """Get a completion as it is now."""
    completion = CompletionId.parse(completion_id)
    run = await door.run(completion.run_id)
    part = part_of(await door.items(completion.run_id), completion.first_step)
    if part.last_step is None and run.status == "failed":
        return _json(failure_document(run), 500)
    return _json(completion_document(run, completion, part, await usage_of(door, run, completion, part.last_step)))


async def _importing(door: Door, body: CreateCompletion, past: Sequence[PastMessage]) -> MakeThread:
    try:
        return await door.with_past(body.model, past, ephemeral=body.store is not True)
    except InvalidInput as error:
        # Its places are those of what was made of the messages.
        raise InvalidInput(f"What was said before cannot be imported: {error.message}", field="messages") from error


async def _submit(
    door: Door,
    run: StatelessRunCreate,
    body: CreateCompletion,
    whole: ChatDigest,
    *,
    key: RequestKey | None,
    make_thread: MakeThread | None = None,
) -> Response:
    if body.stream:
        return await door.submit_and_follow(
            run,
            lambda begun: ChatWriter(door, CompletionId(begun.run_id), whole, includes_usage=body.includes_usage),
            key=key,
            make_thread=make_thread,
        )
    begun = await door.submit(run, key=key, make_thread=make_thread)
    return await _respond(door, CompletionId(begun.run_id), body, whole)


async def _give_results(door: Door, results: Sequence[Said]) -> CompletionId:
    """Give results to the run that waits for them, and return the rest of it."""
    calls = {call_of(said): said for said in results}
    run_id = next(iter(calls))[0]
    for (other_id, _), said in calls.items():
        if other_id != run_id:
            field = f"messages.{said.at}.tool_call_id"
            raise InvalidInput(f"{field} is of another run than the results before it.", field=field)
    call_ids = {call_id for _, call_id in calls}
    steps = [
        item.step
        for item in await door.items(run_id)
        if isinstance(item, ToolCallItem) and item.for_caller and item.call_id in call_ids
    ]
    await door.give_results(run_id, results_of(results))
    return CompletionId(run_id, max(steps, default=0) + 1)


async def _answer(door: Door, rest: CompletionId, said: Sequence[Said]) -> CompletionId:
    """Answer the question with which a completion ended, and return the rest of its run.

    Raises:
        Conflict: It was answered in another way, or can no longer be answered.
    """
    text = "\n".join(message.text for message in said).strip()
    if not text:
        field = f"messages.{said[0].at}"
        raise InvalidInput(f"{field} answers a question of the agent, and has no text.", field=f"{field}.content")
    items = await door.items(rest.run_id)
    asked = [item for item in items if isinstance(item, QuestionItem) and item.step == rest.first_step - 1]
    for question in asked:
        if question.is_open:
            try:
                await door.answer(rest.run_id, _answer_to(question, text))
            except InvalidInput as error:
                field = f"messages.{said[-1].at}"
                raise InvalidInput(f"{field}: {error.message}", field=f"{field}.content") from error
            return rest
    given = {"".join(str(block.get("text", "")) for block in _result_of(items, question)) for question in asked}
    if text not in given:
        raise Conflict("The question was answered in another way.")
    return rest


def _answer_to(question: QuestionItem, text: str) -> RunAnswer:
    if not isinstance(question.request, AskApproval):
        return RunAnswer(text=text, wait_id=question.id)
    if text.casefold().rstrip(".!") in AFFIRMATIVE:
        return RunAnswer(approve=True, wait_id=question.id)
    # Whatever else is said is why not.
    return RunAnswer(approve=False, text=text, wait_id=question.id)


def _result_of(items: Sequence[object], question: QuestionItem) -> Sequence[JsonObject]:
    results = [item for item in items if isinstance(item, ToolResultItem) and item.call_id == question.call_id]
    return results[0].content if results else ()


async def _respond(door: Door, completion: CompletionId, body: CreateCompletion, whole: ChatDigest) -> Response:
    if body.stream:
        writer = ChatWriter(door, completion, whole, includes_usage=body.includes_usage)
        return await door.follow(completion.run_id, writer)
    run = await door.wait(completion.run_id)
    part = part_of(await door.items(completion.run_id), completion.first_step)
    finish = finish_of(run, part)
    if finish is None:
        return _unfinished(run, completion)
    if part.last_step is None and run.status == "failed":
        return _json(failure_document(run), 500)
    if finish != "tool_calls":
        rest = CompletionId(run.id, 0 if part.last_step is None else part.last_step + 1)
        await door.note_place(whole.with_answer(part.text), str(rest))
    return _json(completion_document(run, completion, part, await usage_of(door, run, completion, part.last_step)))


def _unfinished(run: RunView, completion: CompletionId) -> Response:
    message = (
        f"The run is {run.status}, and has not ended in the time that a request may take. Ask for a stream, repeat the "
        f"request with its Idempotency-Key, or get /openai/v1/chat/completions/{completion} later."
    )
    error = {"message": message, "type": "server_error", "param": None, "code": "run_unfinished"}
    return _json({"error": error}, 504)


def _without_agent(run: StatelessRunCreate) -> StatelessRunCreate:
    return run.model_copy(update={"agent_id": None, "ephemeral": False})


def _json(document: JsonObject, status: int = 200) -> Response:
    # Its SDKs send requests again that failed, which would be another run.
    headers = {} if status < 500 else {"x-should-retry": "false"}
    return Response(orjson.dumps(document), status, headers, media_type="application/json")
