"""Chat: conversations with agents, live."""

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from functools import partial

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, NotFound, Rejected
from nova_workers.base.ids import new_id
from nova_workers.client.thread_text import markdown_of_thread
from nova_workers.console.access import agent_choices, model_choices
from nova_workers.console.chat import actions
from nova_workers.console.chat.around import load_around
from nova_workers.console.chat.feed import follow_thread
from nova_workers.console.chat.listing import Chosen, Listed, load_list
from nova_workers.console.chat.messages import IMAGES, message_of, read_message
from nova_workers.console.chat.transcript import load_conversation
from nova_workers.console.forms import Form, build
from nova_workers.console.live import resume_id, stream
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import cursor_of, filter_of, pager
from nova_workers.console.rendering import fragment, is_fragment, render, render_long, see_other
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import StatelessRunCreate

_INLINE = IMAGES | {"application/pdf"}
_MEDIA_CACHE = "private, max-age=86400, immutable"


async def show_list(request: Request) -> Response:
    """Show the conversations, newest first, and the composer of a new one."""
    return await _list_page(request, Form({"agent_id": filter_of(request, "agent") or "nova", "key": new_id("evt")}))


async def start(request: Request) -> Response:
    """Send the first message of a new conversation."""
    form, files, problem = await read_message(request)
    values: dict[str, object] = {"agent_id": form.given("agent_id") or "nova"}
    try:
        return await _sent(request, form, files, values, problem)
    except Rejected as error:
        return await _list_page(request, form.refused(error), status=422)


async def show_thread(request: Request) -> Response:
    """Show a conversation: its newest turns, or those up to a depth (`to`)."""
    return await _thread_page(request, Form({"key": new_id("evt")}))


async def send(request: Request) -> Response:
    """Send a message to a conversation; while a run works, as the form says."""
    form, files, problem = await read_message(request)
    values: dict[str, object] = {
        "thread_id": request.path_params["thread_id"],
        "on_busy": form.given("on_busy") or "enqueue",
    }
    try:
        return await _sent(request, form, files, values, problem)
    except Rejected as error:
        if is_fragment(request):
            raise
        return await _thread_page(request, form.refused(error), status=422)


async def _list_page(request: Request, form: Form, *, status: int = 200) -> Response:
    client = client_of(request)
    listed, agents, models = await asyncio.gather(
        _list_of(request, cursor=cursor_of(request)),
        agent_choices(client),
        model_choices(client),
    )
    return render(
        request,
        "chat/index.html",
        status=status,
        listed=listed,
        pager=pager(request, listed.page),
        agents=agents,
        models=models,
        form=form,
    )


async def _list_of(request: Request, *, cursor: str | None = None) -> Listed:
    """Return the list of conversations that the address names."""
    return await load_list(client_of(request), Chosen.by(request), state_of(request).clock.now(), cursor=cursor)


async def _thread_page(request: Request, form: Form, *, status: int = 200) -> Response:
    client, thread_id = client_of(request), request.path_params["thread_id"]
    conversation, listed, around, models = await asyncio.gather(
        load_conversation(client, thread_id, to_depth=_depth(filter_of(request, "to"))),
        _list_of(request),
        load_around(client, thread_id),
        model_choices(client),
    )
    return await render_long(
        request,
        "chat/thread.html",
        status=status,
        conversation=conversation,
        thread=conversation.thread,
        listed=listed,
        around=around,
        models=models,
        form=form,
    )


async def _sent(
    request: Request, form: Form, files: list[ContentBlock], values: dict[str, object], problem: Rejected | None
) -> Response:
    """Submit a message.

    Raises:
        Rejected: The message, or one of its files, is refused.
    """
    if problem is not None:
        raise problem
    message = message_of(form.value("message"), files)
    body = build(StatelessRunCreate, {**values, "message": message, "model": form.given("model")})
    run = await client_of(request).runs.create(body, idempotency_key=form.given("key"))
    return Response(status_code=204) if is_fragment(request) else see_other(request, f"/chat/{run.thread_id}#end")


async def show_events(request: Request) -> Response:
    """Stream the changes of a conversation."""
    after = resume_id(request) or "-1"

    def rendered(macro: str, /, *values: object) -> Markup:
        return fragment(request, "chat/parts.html", macro, *values)

    return stream(
        state_of(request).watch,
        follow_thread(
            client_of(request),
            request.path_params["thread_id"],
            after=int(after) if after.removeprefix("-").isdecimal() else -1,
            render=rendered,
            look=partial(_list_of, request),
        ),
    )


async def export(request: Request) -> Response:
    """Download a conversation as Markdown."""
    client = client_of(request)
    thread = await client.threads.get(request.path_params["thread_id"])
    return StreamingResponse(
        markdown_of_thread(client, thread),
        media_type="text/markdown; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{thread.id}.md"', "cache-control": "no-store"},
    )


async def show_media(request: Request) -> Response:
    """Show an image or a document of a message: the place of its block, and within a tool result."""
    at = request.path_params
    depth = int(at["depth"])
    page = await client_of(request).threads.messages(at["thread_id"], from_depth=depth, to_depth=depth, limit=200)
    message = next((message for message in page.items if message.id == at["message_id"]), None)
    block = None if message is None else _block_at(message.content, str(at["place"]).split("."))
    source = None if block is None else block.get("source")
    if not isinstance(source, dict) or source.get("media_type") not in _INLINE or source.get("type") != "base64":
        raise NotFound(f"There is no image or document at {request.url.path!r}.", status=404)
    return Response(
        b64decode(str(source["data"])),
        media_type=str(source["media_type"]),
        headers={"cache-control": _MEDIA_CACHE, "content-disposition": "inline"},
    )


def _block_at(content: Sequence[ContentBlock], place: Sequence[str]) -> ContentBlock | None:
    head, *rest = place
    if not head.isdecimal() or int(head) >= len(content):
        return None
    block = content[int(head)]
    if not rest:
        return block
    inner = block.get("content")
    return _block_at(inner, rest) if isinstance(inner, list) else None


def _depth(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise InvalidInput(f"{text!r} is not the depth of a turn.", field="to")
    return int(text)


PAGE = PageModule(
    routes=(
        Route("/chat", show_list, methods=["GET"]),
        Route("/chat", start, methods=["POST"]),
        Route("/chat/{thread_id:id}", show_thread, methods=["GET"]),
        Route("/chat/{thread_id:id}/messages", send, methods=["POST"]),
        Route("/chat/{thread_id:id}/events", show_events, methods=["GET"]),
        Route("/chat/{thread_id:id}/export.md", export, methods=["GET"]),
        Route("/chat/{thread_id:id}/media/{depth:int}/{message_id:id}/{place:id}", show_media, methods=["GET"]),
        *actions.ROUTES,
    ),
    nav=(NavEntry("Work", "Chat", "/chat", "chat", key="c", id_prefix="thr_", scope="runs:read", main=2),),
)
