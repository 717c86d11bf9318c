"""Adding runs to a dataset: one with its answer to edit, those that were selected, or all that match the filters."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Rejected
from nova_workers.base.vocabulary import OPEN_RUNS
from nova_workers.client.client import NovaClient
from nova_workers.console.forms import Form, build
from nova_workers.console.pages.runs.canceling import Fields, read_selection
from nova_workers.console.pages.runs.filters import RunQuery
from nova_workers.console.pages.runs.sending import ended_runs
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.datasets import MAX_DATASETS, MAX_FROM_RUNS, ExamplesAdded, ExamplesFromRuns
from nova_workers.contracts.http.wire import RunView


async def show(request: Request) -> Response:
    """Show which runs would be added, and ask for the dataset and what a good answer is."""
    given, client = request.query_params, client_of(request)
    return await _page(request, await _runs(client, request, given), given, Form())


async def execute(request: Request) -> Response:
    """Add the runs that the form names."""
    given, client = await read_selection(request), client_of(request)
    form = Form({name: text.replace("\r\n", "\n") for name, text in given.items()})
    try:
        added = await client.datasets.take(form.value("dataset"), _taking(given, form))
    except Rejected as error:
        return await _page(request, await ended_runs(client.runs, given.getlist("run")), given, form.refused(error))
    return see_other(
        request,
        f"/datasets/{form.value('dataset')}",
        flash=describe_added(added),
        kind="warn" if added.skipped else "good",
    )


def words_in(text: str) -> list[str]:
    """Return the words of a field that are separated by commas or blanks."""
    return text.replace(",", " ").split()


def describe_added(added: ExamplesAdded) -> str:
    """Return the report of an addition, with each outcome that there is."""
    counts = (
        (added.added, "added"),
        (added.replaced, "replaced one of the same key"),
        (added.unchanged, "there already"),
        (added.shortened, "with a shortened conversation"),
    )
    text = f"{', '.join(f'{number:,} {what}' for number, what in counts if number) or 'Nothing was added'}."
    reasons = [*added.skipped.values()]
    return f"{text} {len(reasons):,} left out: {reasons[0]}" if reasons else text


async def _page(request: Request, runs: Sequence[RunView], given: Fields, form: Form) -> Response:
    client = client_of(request)
    datasets = await client.datasets.list(limit=MAX_DATASETS)
    return render(
        request,
        "runs/to_dataset.html",
        status=422 if form.problem else 200,
        runs=runs,
        datasets=[one.name for one in datasets.items],
        is_capped="all" in given and len(runs) == MAX_FROM_RUNS,
        form=form,
        back=f"/runs/{runs[0].id}" if len(runs) == 1 else RunQuery.of(given).address(),
    )


async def _runs(client: NovaClient, request: Request, given: Fields) -> list[RunView]:
    """Return the ended runs that were selected, or else the newest that match."""
    if "all" not in given:
        return await ended_runs(client.runs, given.getlist("run")[:MAX_FROM_RUNS])
    page = await RunQuery.of(given).page(client, state_of(request).clock.now(), limit=MAX_FROM_RUNS)
    return [run for run in page.items if run.status not in OPEN_RUNS]


def _taking(given: Fields, form: Form) -> ExamplesFromRuns:
    return build(
        ExamplesFromRuns,
        {
            "runs": {"run_ids": given.getlist("run")},
            "limit": max(len(given.getlist("run")), 1),
            "expected": form.given("expected") or "none",
            "expected_text": form.given("expected_text"),
            "rubric": form.given("rubric"),
            "tags": words_in(form.value("tags")),
            "split": form.given("split"),
        },
    )
