"""One run: its waterfall, its steps, and the ledger's rows; live while it is open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.client.resources.runs import Runs
from nova_workers.console.access import name_of_run, name_of_thread
from nova_workers.console.actions import Done, act, answer_run
from nova_workers.console.drawing.waterfall import waterfall
from nova_workers.console.forms import read_form
from nova_workers.console.live import DONE, RENEW, Change, renewals, stream
from nova_workers.console.paging import cursor_of
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.overview.timeline import RunTimeline
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate

_STEPS = 50
_NEWS = frozenset({"step", "tool_status", "waiting", "stream_end", "stream_start", "stream_error"})
"""Events that change what the ledger has of a run."""


async def show(request: Request) -> Response:
    """Show a run."""
    client = client_of(request)
    run, timeline = await _read(client.runs, request)
    conversation, parent = await asyncio.gather(
        name_of_thread(client, run.thread_id), name_of_run(client, timeline.parent_run_id)
    )
    return render(
        request,
        "runs/show.html",
        run=run,
        timeline=timeline,
        conversation=conversation,
        parent=parent,
        bars=waterfall(timeline, state_of(request).clock.now()),
        is_open=run.finished_at is None,
    )


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


async def try_again(request: Request) -> Response:
    """Try the failed run again."""
    run_id = request.path_params["run"]
    calls = client_of(request).runs
    return await act(request, f"/runs/{run_id}", lambda: calls.retry(run_id), "The run is tried again.")


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


async def _read(runs: Runs, request: Request) -> tuple[RunView, RunTimeline]:
    run_id = request.path_params["run"]
    run, timeline = await asyncio.gather(
        runs.get(run_id), runs.timeline(run_id, limit=_STEPS, cursor=cursor_of(request))
    )
    return run, timeline
