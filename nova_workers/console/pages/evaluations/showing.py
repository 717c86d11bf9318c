"""The list of evaluations, and one: the regressions first, two answers side by side."""

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.console.actions import act
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.evaluations import TrialView

_DATASETS = 50


async def show_list(request: Request) -> Response:
    """Show a page of evaluations, newest first, and the datasets."""
    client = client_of(request)
    page = await client.evaluations.list(
        agent_id=filter_of(request, "agent"),
        dataset=filter_of(request, "dataset"),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    datasets = await client.datasets.list(limit=_DATASETS)
    return render(
        request,
        "evaluations/list.html",
        evaluations=page.items,
        datasets=datasets.items,
        agent=filter_of(request, "agent"),
        dataset=filter_of(request, "dataset"),
        pager=pager(request, page),
    )


async def show(request: Request) -> Response:
    """Show an evaluation, and the answers to an example that was chosen."""
    client, evaluation_id = client_of(request), request.path_params["evaluation"]
    evaluation = await client.evaluations.get(evaluation_id)
    key = filter_of(request, "key")
    trials = await client.evaluations.trials(
        evaluation_id, key=key, limit=PAGE_SIZE, cursor=None if key else cursor_of(request)
    )
    return render(
        request,
        "evaluations/show.html",
        evaluation=evaluation,
        key=key,
        pairs=_pairs(trials.items) if key else (),
        trials=() if key else trials.items,
        pager=pager(request, trials),
    )


async def cancel(request: Request) -> Response:
    """Cancel an evaluation."""
    calls, evaluation_id = client_of(request).evaluations, request.path_params["evaluation"]
    return await act(request, f"/evaluations/{evaluation_id}", lambda: calls.cancel(evaluation_id), "Canceled.")


def _pairs(trials: list[TrialView]) -> list[dict[str, TrialView]]:
    """Return the answers to one example: of each repetition those of both versions."""
    by_repeat: dict[int, dict[str, TrialView]] = {}
    for trial in trials:
        by_repeat.setdefault(trial.repeat, {})[trial.arm] = trial
    return [by_repeat[repeat] for repeat in sorted(by_repeat)]
