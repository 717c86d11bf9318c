"""Trying an agent: a conversation beside its form, whose answers stream in."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.client.client import NovaClient
from nova_workers.client.run_text import RunText
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.live import DONE, Change, resume_id, stream
from nova_workers.console.navigation import id_given
from nova_workers.console.rendering import fragment, render, see_other
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.events import (
    AssistantMessage,
    Event,
    EventCursor,
    Restart,
    StreamEnd,
    StreamStart,
    Token,
    ToolStatus,
    Waiting,
)
from nova_workers.contracts.http.wire import RunCreate, RunView, ThreadCreate

_TITLE_CHARS = 60
_RUNS = 20
_PARTS = "agents/try_parts.html"


async def show(request: Request) -> Response:
    """Show the conversation, if there is one, and the field for a message."""
    return await _page(request, Form(), id_given(request.query_params.get("thread")), 200)


async def send(request: Request) -> Response:
    """Send a message in the conversation, or in a new one."""
    form = await read_form(request)
    client, agent_id = client_of(request), request.path_params["agent"]
    thread_id, message = id_given(form.given("thread")), form.given("message")
    if message is None:
        return await _page(request, Form(form.values, errors={"message": "Write a message."}), thread_id, 422)
    try:
        run = build(RunCreate, {"message": message, "metadata": {"tried_in": "console"}})
        if thread_id is None:
            title = f"Try: {' '.join(message.split())}"[:_TITLE_CHARS]
            thread_id = (await client.threads.create(ThreadCreate(agent_id=agent_id, title=title))).id
        await client.runs.create(run, thread_id=thread_id)
    except InvalidInput as error:
        return await _page(request, form.refused(error), thread_id, 422)
    except Rejected as error:
        return await _page(request, Form(form.values, errors={"message": error.message}), thread_id, 409)
    return see_other(request, f"/agents/{agent_id}/try", query={"thread": thread_id})


async def follow(request: Request) -> Response:
    """Stream what happens in a run as changes of its part of the page."""
    client, run_id = client_of(request), request.path_params["run"]
    await client.runs.get(run_id)
    return stream(state_of(request).watch, _changes(request, client, run_id))


async def tried(client: NovaClient, thread_id: str | None) -> list[RunView]:
    """Return the runs of a conversation, oldest first."""
    if thread_id is None:
        return []
    return list(reversed((await client.runs.list(thread_id=thread_id, limit=_RUNS)).items))


async def _page(request: Request, form: Form, thread_id: str | None, status: int) -> Response:
    client = client_of(request)
    agent, runs = await asyncio.gather(client.agents.get(request.path_params["agent"]), tried(client, thread_id))
    return render(request, "agents/try.html", status=status, agent=agent, form=form, runs=runs, thread_id=thread_id)


async def _changes(request: Request, client: NovaClient, run_id: str) -> AsyncGenerator[Change]:
    try:
        after = EventCursor.parse(resume_id(request) or "0-0")
    except ValueError:
        after = EventCursor()
    answer, is_shown = RunText(), False
    rows: dict[str, str] = {}
    # From the start, also after a lost connection: what is void may be text that the page shows already, and the ids of
    # a replay from the ledger depend on where it began. So the first changes replace all that the page shows.
    async with aclosing(client.runs.events(run_id)) as events:
        async for cursor, event in events:
            adds = is_shown and isinstance(event, Token) and bool(answer.open or not answer.closed)
            answer.feed(event)
            row = _row(request, event)
            rows |= row
            if cursor.key() <= after.key():
                continue
            if not is_shown or isinstance(event, Token | StreamStart | Restart | AssistantMessage):
                yield _text_change(run_id, answer, event, str(cursor), adds=adds)
            if not is_shown:
                yield Change("inner", f"try-{run_id}-tools", "".join(rows.values()), str(cursor))
            elif row:
                yield Change("append", f"try-{run_id}-tools", "".join(row.values()), str(cursor))
            is_shown = True
            if isinstance(event, StreamEnd) and event.final:
                break
    run = await client.runs.get(run_id)
    yield Change("replace", f"try-{run_id}", fragment(request, _PARTS, "exchange", run))
    yield DONE


def _text_change(run_id: str, answer: RunText, event: Event, cursor: str, *, adds: bool) -> Change:
    """Return the change of the answer's text. `adds`: the event is a piece that continues the text of the page."""
    if adds and isinstance(event, Token):
        return Change("append", f"try-{run_id}-text", str(escape(event.text if event.agent is None else "")), cursor)
    # Each step's text is a paragraph of its own.
    whole = "\n\n".join(text for text in (*answer.texts, answer.open) if text)
    return Change("inner", f"try-{run_id}-text", str(escape(whole)), cursor)


def _row(request: Request, event: Event) -> dict[str, str]:
    """Return the row of a call or of a wait, by what it is about; empty for another event."""
    match event:
        case ToolStatus():
            return {event.tool_call_id: fragment(request, _PARTS, "tool", event)}
        case Waiting():
            return {f"{event.tool_call_id}-wait": fragment(request, _PARTS, "waiting", event)}
        case _:
            return {}
