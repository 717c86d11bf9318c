"""One run as a trace: the tree of what it did, and what is selected of it; live while it is open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nova_workers.client.client import NovaClient
from nova_workers.client.resources.runs import Runs
from nova_workers.console.access import if_allowed, name_of_run, name_of_thread
from nova_workers.console.actions import Done, act, answer_run, rate_run
from nova_workers.console.chat.messages import message_of, send_in_fork
from nova_workers.console.drawing.trace import trace
from nova_workers.console.forms import Form, read_form
from nova_workers.console.live import DONE, RENEW, Change, renewals, stream
from nova_workers.console.pages.runs.selection import selected, with_request
from nova_workers.console.paging import cursor_of
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.overview.timeline import RunTimeline
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate

_STEPS = 100
_RAW_MESSAGES = 200
_FEEDBACK = 20
_NEWS = frozenset({"step", "tool_status", "waiting", "stream_end", "stream_start", "stream_error"})
"""Events that change what the ledger has of a run."""


async def show(request: Request) -> Response:
    """Show a run."""
    client = client_of(request)
    run, timeline = await _read(client.runs, request)
    at = selected(request.query_params.get("at", ""), run, timeline)
    conversation, parent, feedback, at = await asyncio.gather(
        name_of_thread(client, run.thread_id),
        name_of_run(client, timeline.parent_run_id),
        client.feedback.of_run(run.id, limit=_FEEDBACK),
        with_request(client, request, run.id, at),
    )
    return render(
        request,
        "runs/show.html",
        run=run,
        timeline=timeline,
        conversation=conversation,
        parent=parent,
        feedback=feedback.items,
        nodes=trace(timeline, state_of(request).clock.now()),
        selected=at,
        cursor=cursor_of(request),
        is_open=run.finished_at is None,
    )


async def raw(request: Request) -> Response:
    """Show the API's JSON of what is selected: what a step's model was asked, else the run's timeline."""
    client = client_of(request)
    run, timeline = await _read(client.runs, request)
    at = selected(request.query_params.get("at", ""), run, timeline)
    if at.step is None:
        return JSONResponse({"run": run.model_dump(mode="json"), "timeline": timeline.model_dump(mode="json")})
    asked = await if_allowed(client.runs.request(run.id, at.step.index, limit=_RAW_MESSAGES), None)
    request_json = None if asked is None else asked.model_dump(mode="json")
    return JSONResponse({"step": at.step.model_dump(mode="json"), "request": request_json})


async def follow(request: Request) -> Response:
    """Say when the run has news."""
    return stream(state_of(request).watch, _changes(request))


async def _changes(request: Request) -> AsyncGenerator[Change]:
    runs, run_id = client_of(request).runs, request.path_params["run"]
    async with aclosing(renewals(runs.events(run_id), lambda item: item[1].type in _NEWS)) as news:
        async for _ in news:
            yield RENEW
    yield DONE


async def cancel(request: Request) -> Response:
    """Request the cancellation of a run."""
    run_id = request.path_params["run"]
    calls = client_of(request).runs
    return await act(request, f"/runs/{run_id}", lambda: calls.cancel(run_id), "Its cancellation is requested.")


async def answer(request: Request) -> Response:
    """Answer a question of the run, or decide on a call."""
    run_id, form = request.path_params["run"], await read_form(request)
    calls = client_of(request).runs
    return await act(
        request,
        f"/runs/{run_id}",
        lambda: answer_run(calls, run_id, form.given("wait_id"), form),
        "The answer was sent; the run continues.",
    )


async def rate(request: Request) -> Response:
    """Give feedback on the run."""
    run_id, form = request.path_params["run"], await read_form(request)
    calls = client_of(request).feedback
    return await act(request, f"/runs/{run_id}", lambda: rate_run(calls, run_id, form), "Rated.")


async def try_again(request: Request) -> Response:
    """Try the failed run again."""
    run_id = request.path_params["run"]
    calls = client_of(request).runs
    return await act(request, f"/runs/{run_id}", lambda: calls.retry(run_id), "The run is tried again.")


async def kick(request: Request) -> Response:
    """Look after a queued or waiting run now, which else happens by itself in some seconds."""
    run_id = request.path_params["run"]
    calls = client_of(request).runs
    return await act(request, f"/runs/{run_id}", lambda: calls.kick(run_id), "The fleet looks after the run now.")


async def retry(request: Request) -> Response:
    """Send the run's message again, to the same conversation."""
    runs, run_id, form = client_of(request).runs, request.path_params["run"], await read_form(request)
    run = await runs.get(run_id)
    message = StatelessRunCreate(message=run.message, thread_id=run.thread_id)
    return await act(
        request,
        f"/runs/{run_id}",
        lambda: runs.create(message, idempotency_key=form.given("key")),
        lambda again: Done("The message was sent again, as this run.", f"/runs/{again.id}"),
    )


async def fork(request: Request) -> Response:
    """Send the run's message again, changed, in a fork of the conversation that leaves its turn out."""
    client, run_id, form = client_of(request), request.path_params["run"], await read_form(request)
    return await act(
        request,
        f"/runs/{run_id}",
        lambda: _send_in_fork(client, run_id, form),
        lambda made: Done(
            "This run is in a fork of the conversation; the original stays as it was.", f"/runs/{made.id}"
        ),
    )


async def _send_in_fork(client: NovaClient, run_id: str, form: Form) -> RunView:
    run, timeline = await asyncio.gather(client.runs.get(run_id), client.runs.timeline(run_id, limit=1))
    files = [block for block in run.message if block.get("type") != "text"]
    message = message_of(form.value("message"), files)
    return await send_in_fork(
        client, run.thread_id, timeline.parent_turn_id, run.agent_id, message, key=form.given("key")
    )


async def _read(runs: Runs, request: Request) -> tuple[RunView, RunTimeline]:
    run_id = request.path_params["run"]
    run, timeline = await asyncio.gather(
        runs.get(run_id), runs.timeline(run_id, limit=_STEPS, cursor=cursor_of(request))
    )
    return run, timeline
