"""Sending the messages of selected runs again, each as a new run of its conversation."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Gone, NotFound
from nova_workers.base.vocabulary import OPEN_RUNS
from nova_workers.client.resources.runs import Runs
from nova_workers.console.actions import Done, act
from nova_workers.console.pages.runs.canceling import read_selection, selection_of
from nova_workers.console.pages.runs.filters import RunQuery
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.wire import MAX_BATCH, RunBatch, RunBatchItem, RunBatchView, RunView

_AT_ONCE = 8
"""Requests of one person that read runs, at most."""


async def confirm(request: Request) -> Response:
    """Ask whether to send the messages again, with their number."""
    given = request.query_params
    selected = given.getlist("run")
    ended = await ended_runs(client_of(request).runs, selected[:MAX_BATCH])
    which = RunQuery.of(given)
    return render(
        request,
        "runs/send_again.html",
        runs=ended,
        left_out=len(set(selected)) - len(ended),
        fields=[*which.fields(), *selection_of(given)],
        back=which.address(),
    )


async def execute(request: Request) -> Response:
    """Send what the question was about."""
    given, runs = await read_selection(request), client_of(request).runs
    ended = await ended_runs(runs, given.getlist("run")[:MAX_BATCH])
    back = RunQuery.of(given).address()

    async def send() -> RunBatchView:
        items = [
            # Each once, also if the form is sent twice.
            RunBatchItem(message=run.message, thread_id=run.thread_id, idempotency_key=f"{given['key']}-{run.id}")
            for run in ended
        ]
        return await runs.create_many(RunBatch(items=items)) if items else RunBatchView(items=[])

    return await act(request, back, send, _report)


def _report(sent: RunBatchView) -> Done:
    done = sum(one.run is not None for one in sent.items)
    refused = [one.problem.detail for one in sent.items if one.problem is not None]
    if not sent.items:
        return Done("No run was selected that has ended.", kind="warn")
    text = f"{done:,} sent again."
    if not refused:
        return Done(text)
    return Done(f"{text} {len(refused):,} were refused: {refused[0]}", kind="warn" if done else "bad")


async def ended_runs(runs: Runs, run_ids: Sequence[str]) -> list[RunView]:
    """Return the selected runs that have ended, oldest first: a conversation gets its messages in their order."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def read(run_id: str) -> RunView | None:
        async with free:
            try:
                return await runs.get(run_id)
            except (NotFound, Gone):
                return None

    found = await asyncio.gather(*(read(run_id) for run_id in sorted(set(run_ids))))
    return [run for run in found if run is not None and run.status not in OPEN_RUNS]
