"""Canceling many runs: those that were selected, or all open ones that match the list's filters."""

from datetime import datetime

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.vocabulary import OPEN_RUNS
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import build
from nova_workers.console.pages.runs.filters import RunQuery, read_moment
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.wire import MAX_BULK_CANCEL, BulkCancel, BulkCanceled

_NONE = BulkCanceled(canceled=0, requested=0)
Fields = ImmutableMultiDict[str, str]


async def confirm(request: Request) -> Response:
    """Ask whether to cancel, with the number of runs that it would be."""
    given, now = request.query_params, state_of(request).clock.now()
    body = _body(given, now, before=now)
    counted = _NONE if body is None else await client_of(request).runs.cancel_many(_counting(body))
    number = counted.canceled + counted.requested
    which = RunQuery.of(given)
    # Runs that are submitted while a person reads the question are not among those counted.
    fields = [*which.fields(), *selection_of(given), ("before", now.isoformat())]
    return render(
        request,
        "runs/cancel.html",
        which=which,
        is_all="all" in given,
        fields=fields,
        conditions=which.fields(ordered=False),
        counted=counted,
        number=number,
        is_capped=number >= MAX_BULK_CANCEL,
        back=which.address(),
    )


async def execute(request: Request) -> Response:
    """Cancel what the question was about."""
    given, now = await read_selection(request), state_of(request).clock.now()

    async def cancel() -> BulkCanceled:
        body = _body(given, now, before=read_moment("before", given.get("before")))
        return _NONE if body is None else await client_of(request).runs.cancel_all(body)

    return await act(request, RunQuery.of(given).address(), cancel, _report)


def _report(done: BulkCanceled) -> Done:
    if not done.canceled and not done.requested:
        return Done("No open run was left to cancel.", kind="warn")
    text = f"{done.canceled:,} canceled"
    return Done(f"{text}; {done.requested:,} had begun, and stop in a moment." if done.requested else f"{text}.")


def _counting(body: BulkCancel) -> BulkCancel:
    return body.model_copy(update={"dry_run": True})


async def read_selection(request: Request) -> Fields:
    """Return the fields of a form with many runs."""
    sent = await request.form(max_fields=2 * MAX_BULK_CANCEL)
    return ImmutableMultiDict([(name, value) for name, value in sent.multi_items() if isinstance(value, str)])


def selection_of(given: Fields) -> list[tuple[str, str]]:
    """Return the fields that say which runs were selected."""
    return [("all", "yes")] if "all" in given else [("run", run_id) for run_id in given.getlist("run")]


def _body(given: Fields, now: datetime, *, before: datetime | None) -> BulkCancel | None:
    """Return the API's request; None where no open run can match."""
    if "all" not in given:
        selected = given.getlist("run")
        return build(BulkCancel, {"run_ids": selected}) if selected else None
    which = RunQuery.of(given)
    statuses = [status for status in which.statuses if status in OPEN_RUNS]
    if which.statuses and not statuses:
        return None
    until = min((at for at in (which.until, before) if at is not None), default=None)
    bounds = {"status": statuses, "until": until}
    return build(BulkCancel, which.body(now) | {name: value for name, value in bounds.items() if value})
