"""What people do in a chat beside sending: answer, change the queue, cancel, fork, retry, name and delete.

A form of the page's own script gets 204, and the page's stream shows what changed; a plain form goes back to the page.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.client.client import NovaClient
from nova_workers.console.actions import Done, act, answer_run, rate_run
from nova_workers.console.chat.messages import message_of, send_in_fork
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.state import client_of
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import (
    RunEdit,
    RunView,
    StatelessRunCreate,
    ThreadFork,
    ThreadPatch,
    TurnView,
)


async def cancel(request: Request) -> Response:
    """Cancel a run."""
    calls, run_id = client_of(request).runs, request.path_params["run_id"]
    return await _changed(request, lambda: calls.cancel(run_id))


async def edit(request: Request) -> Response:
    """Replace the text of a queued message; what is attached to it stays."""
    form, client, run_id = await read_form(request), client_of(request), request.path_params["run_id"]
    run = await client.runs.get(run_id)
    files = [block for block in run.message if block.get("type") != "text"]
    return await _changed(
        request,
        lambda: client.runs.edit(run_id, build(RunEdit, {"message": message_of(form.value("message"), files)})),
    )


async def withdraw(request: Request) -> Response:
    """Remove a queued message."""
    calls, run_id = client_of(request).runs, request.path_params["run_id"]
    return await _changed(request, lambda: calls.withdraw(run_id))


async def answer(request: Request) -> Response:
    """Answer a question, or approve or deny a call."""
    form, calls, run_id = await read_form(request), client_of(request).runs, request.path_params["run_id"]
    return await _changed(request, lambda: answer_run(calls, run_id, form.given("wait_id"), form))


async def rate(request: Request) -> Response:
    """Rate the answer of a run."""
    form, calls, at = await read_form(request), client_of(request).feedback, request.path_params
    return await act(
        request,
        _page(at["thread_id"]),
        lambda: rate_run(calls, at["run_id"], form),
        "Rated. The page of the run takes a comment.",
    )


async def fork(request: Request) -> Response:
    """Continue from a turn in a new conversation."""
    form, calls, at = await read_form(request), client_of(request).threads, request.path_params
    return await act(
        request,
        _page(at["thread_id"]),
        lambda: calls.fork(at["thread_id"], ThreadFork(turn_id=at["turn_id"]), idempotency_key=form.given("key")),
        lambda made: Done("This is a fork: it goes on from here, and the original stays.", _page(made.id)),
    )


async def restore(request: Request) -> Response:
    """Give the model again what was left out in a turn."""
    calls, at = client_of(request).threads, request.path_params
    return await act(
        request,
        _page(at["thread_id"]),
        lambda: calls.restore_content(at["thread_id"], at["turn_id"]),
        "The model gets it again with your next message.",
    )


async def retry(request: Request) -> Response:
    """Send a turn's message again, perhaps changed, in a fork that leaves the turn and what followed it out."""
    form, client, at = await read_form(request), client_of(request), request.path_params
    return await act(
        request,
        _page(at["thread_id"]),
        lambda: _send_in_fork(client, at["thread_id"], at["turn_id"], form),
        lambda run: Done("Tried again in a fork; the original stays as it was.", _page(run.thread_id)),
    )


async def _send_in_fork(client: NovaClient, thread_id: str, turn_id: str, form: Form) -> RunView:
    turn, content = await _turn(client, thread_id, form, turn_id)
    changed = form.given("message")
    files = [block for block in content if block.get("type") != "text"]
    message = list(content) if changed is None else message_of(changed, files)
    return await send_in_fork(client, thread_id, turn.parent_turn_id, turn.agent_id, message, key=form.given("key"))


async def again(request: Request) -> Response:
    """Send a turn's message again to the same conversation: the turn stays in it."""
    form, client, thread_id = await read_form(request), client_of(request), request.path_params["thread_id"]
    _, content = await _turn(client, thread_id, form, request.path_params["turn_id"])
    body = build(StatelessRunCreate, {"thread_id": thread_id, "message": content})
    return await _changed(request, lambda: client.runs.create(body))


async def name(request: Request) -> Response:
    """Set the title and the label; an empty one clears."""
    form, thread_id = await read_form(request), request.path_params["thread_id"]
    given = {"title": form.given("title"), "label": form.given("label")}
    calls = client_of(request).threads
    return await act(request, _page(thread_id), lambda: calls.patch(thread_id, build(ThreadPatch, given)), "Saved.")


async def mark(request: Request) -> Response:
    """Pin or archive a conversation, or undo that, and show the page again on which it was done."""
    form, thread_id = await read_form(request), request.path_params["thread_id"]
    given = {name: value == "yes" for name in ("pinned", "archived") if (value := form.given(name)) is not None}
    # The query of the list in which it was done.
    query = form.value("back")
    back = f"/chat{query}".rstrip("?") if query.startswith("?") else _page(thread_id)
    calls = client_of(request).threads
    done = Done("Archived. It still takes messages." if given.get("archived") else None)
    return await act(request, back, lambda: calls.patch(thread_id, build(ThreadPatch, given)), done)


async def delete(request: Request) -> Response:
    """Delete a conversation."""
    calls, thread_id = client_of(request).threads, request.path_params["thread_id"]
    deleted = Done("The conversation is deleted.", "/chat")
    return await act(request, _page(thread_id), lambda: calls.delete(thread_id), deleted)


async def _changed(request: Request, change: Callable[[], Awaitable[object]]) -> Response:
    """Make a change, which the conversation shows. The script shows a refusal beside its form."""
    return await act(request, _page(request.path_params["thread_id"]), change, Done(None))


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
    Route("/chat/{thread_id:id}/runs/{run_id:id}/rate", rate, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/fork", fork, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/retry", retry, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/again", again, methods=["POST"]),
    Route("/chat/{thread_id:id}/turns/{turn_id:id}/restore", restore, methods=["POST"]),
    Route("/chat/{thread_id:id}/name", name, methods=["POST"]),
    Route("/chat/{thread_id:id}/mark", mark, methods=["POST"]),
    Route("/chat/{thread_id:id}/delete", delete, methods=["POST"]),
)
