"""What people do in a chat beside sending: answer, change the queue, cancel, fork, retry, name and delete.

A form of the page's own script gets 204, and the page's stream shows what changed; a plain form goes back to the page.
"""

from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.client.client import NovaClient
from nova_workers.console.actions import act, answer_run
from nova_workers.console.chat.messages import message_of
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.rendering import see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import (
    RunEdit,
    StatelessRunCreate,
    ThreadFork,
    ThreadPatch,
    TurnView,
)
from nova_workers.errors import InvalidInput, NotFound

__all__ = ["ROUTES"]


async def cancel(request: Request) -> Response:
    """Cancel a run."""
    return await _changed(request, client_of(request).runs.cancel(request.path_params["run_id"]))


async def edit(request: Request) -> Response:
    """Replace the text of a queued message; what is attached to it stays."""
    form, client, run_id = await read_form(request), client_of(request), request.path_params["run_id"]
    run = await client.runs.get(run_id)
    files = [block for block in run.message if block.get("type") != "text"]
    message = message_of(form.value("message"), files)
    return await _changed(request, client.runs.edit(run_id, build(RunEdit, {"message": message})))


async def withdraw(request: Request) -> Response:
    """Remove a queued message."""
    return await _changed(request, client_of(request).runs.withdraw(request.path_params["run_id"]))


async def answer(request: Request) -> Response:
    """Answer a question, or approve or deny a call."""
    form = await read_form(request)
    runs, run_id = client_of(request).runs, request.path_params["run_id"]
    return await _changed(request, answer_run(runs, run_id, form.given("wait_id"), form))


async def fork(request: Request) -> Response:
    """Continue from a turn in a new conversation."""
    thread = await client_of(request).threads.fork(
        request.path_params["thread_id"], ThreadFork(turn_id=request.path_params["turn_id"])
    )
    return see_other(request, _page(thread.id), flash="This is a fork: it goes on from here, and the original stays.")


async def retry(request: Request) -> Response:
    """Send a turn's message again, perhaps changed, in a fork that leaves the turn and what followed it out."""
    form, client, thread_id = await read_form(request), client_of(request), request.path_params["thread_id"]
    turn, content = await _turn(client, thread_id, form, request.path_params["turn_id"])
    changed = form.given("message")
    files = [block for block in content if block.get("type") != "text"]
    message = list(content) if changed is None else message_of(changed, files)
    values: dict[str, object] = {"message": message}
    if turn.parent_turn_id is None:
        values["agent_id"] = turn.agent_id
    else:
        values["thread_id"] = (await client.threads.fork(thread_id, ThreadFork(turn_id=turn.parent_turn_id))).id
    run = await client.runs.create(build(StatelessRunCreate, values))
    return see_other(request, _page(run.thread_id), flash="Tried again in a fork; the original stays as it was.")


async def again(request: Request) -> Response:
    """Send a turn's message again to the same conversation: the turn stays in it."""
    form, client, thread_id = await read_form(request), client_of(request), request.path_params["thread_id"]
    _, content = await _turn(client, thread_id, form, request.path_params["turn_id"])
    body = build(StatelessRunCreate, {"thread_id": thread_id, "message": content})
    return await _changed(request, client.runs.create(body))


async def name(request: Request) -> Response:
    """Set the title and the label; an empty one clears."""
    form, thread_id = await read_form(request), request.path_params["thread_id"]
    change = build(ThreadPatch, {"title": form.given("title"), "label": form.given("label")})
    return await act(request, _page(thread_id), client_of(request).threads.patch(thread_id, change), "Saved.")


async def delete(request: Request) -> Response:
    """Delete a conversation."""
    await client_of(request).threads.delete(request.path_params["thread_id"])
    return see_other(request, "/chat", flash="The conversation is deleted.")


async def _changed(request: Request, change: Awaitable[object]) -> Response:
    """Make a change, and go back to the conversation, which shows it."""
    return await act(request, _page(request.path_params["thread_id"]), change)


async def _turn(client: NovaClient, thread_id: str, form: Form, turn_id: str) -> tuple[TurnView, list[ContentBlock]]:
    depth = form.value("depth")
    if not depth.isdecimal() or len(depth) > 9:
        raise InvalidInput(f"{depth!r} is not the depth of a turn.", field="depth")
    at = int(depth)
    turns = (await client.threads.turns(thread_id, to_depth=at, limit=1)).items
    if not turns or turns[0].id != turn_id:
        raise NotFound(f"There is no turn {turn_id!r} in the history of thread {thread_id!r}.", status=404)
    messages = await client.threads.messages(thread_id, from_depth=at, to_depth=at, limit=1)
    return turns[0], messages.items[0].content


def _page(thread_id: str) -> str:
    return f"/chat/{thread_id}"


ROUTES = (
    Route("/chat/{thread_id:id}/runs/{run_id:id}/cancel", cancel, methods=["POST"]),
    Route("/chat/{thread_id:id}/runs/{run_id:id}/edit", edit, methods=["POST"]),
    Route("/chat/{thread_id:id}/runs/{run_id:id}/withdraw", withdraw, methods=["POST"]),
    Route("/chat/{thread_id:id}/runs/{run_id:id}/answer", answer, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/fork", fork, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/retry", retry, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/again", again, methods=["POST"]),
    Route("/chat/{thread_id:id}/name", name, methods=["POST"]),
    Route("/chat/{thread_id:id}/delete", delete, methods=["POST"]),
)
