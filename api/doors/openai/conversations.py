"""``/conversations``: a conversation is a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Path, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import ThreadView

from ...json_body import StrictRoute
from ...params import known_form
from ..service import AnyDoor, Door
from .responses import conversation_id, item_documents, page_of, thread_of

router = APIRouter(prefix="/openai/v1", route_class=StrictRoute, include_in_schema=False)

_DEFAULT_AGENT: Final = "nova"
_IdPath = Annotated[str, Path(), AfterValidator(known_form("conversation"))]


class CreateConversation(BaseModel):
    """The body of ``POST /conversations``. OpenAI's has no `model`: a thread is with one agent from its beginning."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    model: str = _DEFAULT_AGENT
    items: list[JsonObject] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None


@router.post("/conversations")
async def create_conversation(body: CreateConversation, door: AnyDoor) -> Response:
    """Make an empty conversation with an agent."""
    if body.items:
        raise InvalidInput("A conversation begins empty. Send its items as the input of a response.", field="items")
    return _json(_conversation(await door.new_thread(body.model, body.metadata or {})))


@router.get("/conversations/{conversation}")
async def get_conversation(conversation: _IdPath, door: AnyDoor) -> Response:
    """Get a conversation."""
    return _json(_conversation(await door.thread(thread_of(conversation))))


@router.delete("/conversations/{conversation}")
async def delete_conversation(conversation: _IdPath, door: AnyDoor) -> Response:
    """Delete a conversation, and cancel what is open in it."""
    await door.delete_thread(thread_of(conversation))
    return _json({"id": conversation, "object": "conversation.deleted", "deleted": True})


@router.get("/conversations/{conversation}/items")
async def list_conversation_items(
    conversation: _IdPath,
    door: AnyDoor,
    *,
    after: Annotated[str | None, Query(max_length=300)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """List what was said in a conversation, newest first unless `order` is ``asc``."""
    found: list[JsonObject] = []
    begins = 0 if after is None else None
    async for page in _pages(door, thread_of(conversation), oldest_first=order == "asc"):
        if begins is None:
            begins = next((len(found) + at for at, item in enumerate(page, 1) if item["id"] == after), None)
        found += page
        if begins is not None and len(found) > begins + limit:
            break
    return _json(page_of(found, after, limit))


async def _pages(door: Door, thread_id: str, *, oldest_first: bool) -> AsyncGenerator[list[JsonObject]]:
    """Yield the items of a conversation's turns in the order of a list."""
    at: int | None = None
    while True:
        page = await door.items_of_thread(thread_id, at=at, oldest_first=oldest_first)
        items = [document for item in page.items for document in item_documents(item)]
        yield items if oldest_first else items[::-1]
        at = page.goes_on_at
        if at is None:
            return


def _conversation(thread: ThreadView) -> dict[str, Any]:
    return {
        "id": conversation_id(thread.id),
        "object": "conversation",
        "created_at": int(thread.created_at.timestamp()),
        "metadata": thread.metadata,
    }


def _json(document: JsonObject) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")
