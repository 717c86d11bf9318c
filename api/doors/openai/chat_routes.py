"""``/openai/v1/chat/completions``: a client sends the whole chat each time, and it goes on in its thread.

The thread is found by the digest of what was said before. Where none is, because the chat was edited or took place
elsewhere, it is imported into a new thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Path, Response

from nova_workers.base.errors import Conflict, Gone, IllegalTransition, InvalidInput, NotFound
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import PastMessage, RunView, StatelessRunCreate
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.runs.rules.submit import MakeThread
from nova_workers.domain.runs.sql.reads import RunState

from ...json_body import StrictRoute
from ..items import QuestionItem, ToolCallItem
from ..service import AnyDoor, Door, SendingDoor
from .chat import (
    CompletionId,
    completion_document,
    failure_document,
    finish_of,
    part_of,
    usage_of,
)
from .chat_bodies import Conversation, CreateCompletion, Said, conversation_of, result_of, run_of
from .chat_history import ChatDigest, past_of
from .chat_writer import ChatWriter
from .parts import answers_to, run_and_call_of

router = APIRouter(prefix="/openai/v1/chat", route_class=StrictRoute, include_in_schema=False)

_RequestId = Annotated[str | None, Header(min_length=1, max_length=512)]
IdempotencyKey = Annotated[_RequestId, Header(alias="Idempotency-Key")]
ConversationId = Annotated[_RequestId, Header(alias="X-Conversation-Id")]
OpenWebUIChatId = Annotated[_RequestId, Header(alias="X-OpenWebUI-Chat-Id")]
CompletionPath = Annotated[str, Path(max_length=80)]


@router.post("/completions")
async def create_completion(
    body: CreateCompletion,
    door: SendingDoor,
    *,
    idempotency_key: IdempotencyKey = None,
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
    key = door.key(idempotency_key, body)
    if body.stream:
        # First, so that a refusal for too many streams changes nothing.
        async with door.stream_permit() as permit:
            completion, found = await _begin(door, body, chat, before, key)
            writer = ChatWriter(door, completion, whole, includes_usage=body.includes_usage)
            return await door.follow(completion.run_id, writer, found=found, permit=permit)
    completion, _ = await _begin(door, body, chat, before, key)
    return await _respond(door, completion, whole)


async def _begin(
    door: Door, body: CreateCompletion, chat: Conversation, before: str, key: RequestKey | None
) -> tuple[CompletionId, RunState | None]:
    """Return the completion that a request makes, or that an earlier one made with its key; with a new run's state."""
    earlier = await door.earlier(key)
    if earlier is not None:
        return CompletionId.made(earlier), None
    if chat.results:
        part = await _give_results(door, body, chat.results, key)
        if part is not None:
            return part, None
        # No run waits for them: they were made elsewhere, or the run is gone, or was given others.
        chat = chat.without_results()
    run = run_of(body, chat)
    place = await door.find_place(before) if chat.past else None
    if place is not None:
        continued = CompletionId.parse(place)
        try:
            if continued.first_step:
                return await _answer(door, continued, chat.message, key), None
            begun = await door.submit(_without_agent(run), key=key, make_thread=door.after(continued.run_id))
            return CompletionId(begun.run_id), begun.state
        except (NotFound, Gone, Conflict):
            # It was deleted or purged meanwhile, or goes on in another way. What was said is here.
            pass
    past = past_of(chat.past)
    make_thread = await _importing(door, body, past) if past else None
    begun = await door.submit(_without_agent(run) if past else run, key=key, make_thread=make_thread)
    return CompletionId(begun.run_id), begun.state


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


async def _give_results(
    door: Door, body: CreateCompletion, results: Sequence[Said], key: RequestKey | None
) -> CompletionId | None:
    """Give results to the run that waits for them, and return the rest of it. None if no run of the agent does."""
    calls = [run_and_call_of(said.call_id) for said in results]
    run_ids = {call[0] for call in calls if call is not None}
    if None in calls or len(run_ids) != 1:
        return None
    run_id = run_ids.pop()
    call_ids = [call[1] for call in calls if call is not None]
    given = [result_of(said, call_id) for said, call_id in zip(results, call_ids, strict=True)]
    try:
        if (await door.run(run_id)).agent_id != body.model:
            return None
        items = await door.items(run_id)
        steps = [item.step for item in items if isinstance(item, ToolCallItem) and item.call_id in call_ids]
        rest = CompletionId(run_id, max(steps, default=0) + 1)
        return CompletionId.made(await door.give(run_id, results=given, key=key, made=str(rest)))
    except (NotFound, Gone, IllegalTransition):
        return None


async def _answer(door: Door, rest: CompletionId, said: Sequence[Said], key: RequestKey | None) -> CompletionId:
    """Answer the questions with which a completion ended, and return the rest of its run.

    Raises:
        Conflict: They were answered in another way, or can no longer be answered.
    """
    field = f"messages.{said[-1].at}.content"
    if any(block.get("type") != "text" for message in said for block in message.content):
        raise InvalidInput(f"{field} answers a question of the agent, which takes text alone.", field=field)
    items = await door.items(rest.run_id)
    asked = [item for item in items if isinstance(item, QuestionItem) and item.step == rest.first_step - 1]
    due = [question for question in asked if question.is_open] or asked
    answers = answers_to(due, "\n".join(message.text for message in said).strip(), field)
    try:
        return CompletionId.made(await door.give(rest.run_id, answers=answers, key=key, made=str(rest)))
    except InvalidInput as error:
        raise InvalidInput(f"{field}: {error.message}", field=field) from error


async def _respond(door: Door, completion: CompletionId, whole: ChatDigest) -> Response:
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
