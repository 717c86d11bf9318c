"""Datasets: the list, one with its examples in any version, and examples that are added and removed by hand."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, NotFound, Rejected
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.runs.taking import describe_added, words_in
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.datasets import DatasetCreate, ExamplesAdd, Redaction

_REDACTIONS = ("emails", "numbers", "secrets")
_LATEST = 5


async def show_list(request: Request) -> Response:
    """Show a page of datasets, by name."""
    page = await client_of(request).datasets.list(limit=PAGE_SIZE, cursor=cursor_of(request))
    return render(request, "datasets/list.html", datasets=page.items, pager=pager(request, page))


async def new(request: Request) -> Response:
    """Show an empty form, and create a dataset."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        words = [line.strip() for line in form.value("words").splitlines() if line.strip()]
        given = {
            "name": form.value("name").strip(),
            "description": form.value("description").strip(),
            "redact": {**{kind: kind in form.list("redact") for kind in _REDACTIONS}, "words": words},
        }
        try:
            made = await client_of(request).datasets.create(
                build(DatasetCreate, given), idempotency_key=form.given("key")
            )
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/datasets/{made.name}", flash=f"Dataset {made.name} was created.")
    return render(request, "datasets/new.html", status=422 if form.problem else 200, form=form, redactions=_REDACTIONS)


async def show(request: Request) -> Response:
    """Show a dataset with a page of the examples of a version."""
    return await _page(request, Form())


async def add(request: Request) -> Response:
    """Add an example that was typed."""
    name, form = request.path_params["dataset"], await read_form(request)
    given = {
        "key": form.given("key"),
        "input": form.value("input"),
        "expected": form.given("expected"),
        "rubric": form.given("rubric"),
        "tags": words_in(form.value("tags")),
        "split": form.given("split"),
    }
    try:
        added = await client_of(request).datasets.add(name, build(ExamplesAdd, {"examples": [given]}))
    except NotFound:
        raise
    except Rejected as error:
        return await _page(request, _of_example(form.refused(error)))
    return see_other(request, f"/datasets/{name}", flash=describe_added(added))


async def remove(request: Request) -> Response:
    """Remove an example from the next version."""
    name, form = request.path_params["dataset"], await read_form(request)
    calls = client_of(request).datasets
    done = "Removed. The versions before keep it."
    return await act(request, f"/datasets/{name}", lambda: calls.remove(name, form.value("example")), done)


async def delete(request: Request) -> Response:
    """Delete a dataset with all its versions."""
    name = request.path_params["dataset"]
    calls = client_of(request).datasets
    done = Done(f"Dataset {name} is deleted.", "/datasets")
    return await act(request, f"/datasets/{name}", lambda: calls.delete(name), done)


async def _page(request: Request, form: Form) -> Response:
    client, name = client_of(request), request.path_params["dataset"]
    version = filter_of(request, "version")
    if version is not None and not version.isdecimal():
        raise InvalidInput(f"version is {version!r}; it takes a version's number.", field="version", status=422)
    dataset, page, evaluations = await asyncio.gather(
        client.datasets.get(name),
        client.datasets.examples(
            name,
            version=None if version is None else int(version),
            split=filter_of(request, "split"),
            tag=filter_of(request, "tag"),
            limit=PAGE_SIZE,
            cursor=cursor_of(request),
        ),
        client.evaluations.list(dataset=name, limit=_LATEST),
    )
    return render(
        request,
        "datasets/show.html",
        status=422 if form.problem else 200,
        dataset=dataset,
        examples=page.items,
        pager=pager(request, page),
        version=None if version is None else int(version),
        split=filter_of(request, "split"),
        tag=filter_of(request, "tag"),
        evaluations=evaluations.items,
        redacted=_redacted(dataset.redact),
        form=form,
    )


def _redacted(redact: Redaction) -> list[str]:
    kinds = [kind for kind in _REDACTIONS if getattr(redact, kind)]
    return [*kinds, f"words of your own: {len(redact.words):,}"] if redact.words else kinds


def _of_example(form: Form) -> Form:
    """Return the form with each refusal at its field, which the API names by its place in the list."""
    errors = {field.removeprefix("examples.0."): message for field, message in form.errors.items()}
    return Form(form.values, form.lists, errors, form.problem)


PAGE = PageModule(
    routes=(
        Route("/datasets", show_list),
        # No dataset's name begins with a tilde.
        Route("/datasets/~new", new, methods=["GET", "POST"]),
        Route("/datasets/{dataset:id}", show),
        Route("/datasets/{dataset:id}/add", add, methods=["POST"]),
        Route("/datasets/{dataset:id}/remove", remove, methods=["POST"]),
        Route("/datasets/{dataset:id}/delete", delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Datasets", "/datasets", "datasets", scope="runs:read"),),
)
