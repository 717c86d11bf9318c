"""Starting an evaluation: what it would be is estimated first."""

import asyncio
import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.console.access import agent_choices, if_allowed
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.pages.runs.taking import words_in
from nova_workers.console.paging import filter_of
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.datasets import MAX_DATASETS
from nova_workers.contracts.http.evaluations import EvaluationStart, EvaluationStarted

_PLAIN: Final = (
    ("exact", "the answer is the expected one"),
    ("contains", "the expected answer occurs in it"),
    ("number", "its number is the expected one"),
    ("similarity", "it means about the same, by the fleet's embedding model"),
)
"""Evaluators that need nothing but the expected answer of the example."""
_BOUNDS: Final = (("latency", "at_most_s"), ("cost", "at_most_usd"), ("steps", "at_most"))
"""Evaluators that need a bound, with its name."""


async def show(request: Request) -> Response:
    """Show the form, with what the address names."""
    client, agent = client_of(request), filter_of(request, "agent")
    version = filter_of(request, "version")
    if agent is not None and version is None:
        # A key that may not read agents names the version itself.
        found = await if_allowed(client.agents.get(agent), None)
        version = None if found is None else str(found.version)
    given = {"agent": agent, "version": version, "against": filter_of(request, "against")}
    values = {name: value for name, value in given.items() if value is not None}
    values["dataset"] = filter_of(request, "dataset") or ""
    return await _page(request, Form(values, {"evaluators": ("exact",)}), None)


async def start(request: Request) -> Response:
    """Estimate the evaluation of the form, or start it."""
    form, calls = await read_form(request), client_of(request).evaluations
    is_estimate = form.value("do") != "start"
    try:
        wanted = build(EvaluationStart, {**_fields(form), "dry_run": is_estimate})
        started = await calls.start(wanted, idempotency_key=None if is_estimate else form.given("key"))
    except Rejected as error:
        return await _page(request, form.refused(error), None)
    if started.id is None:
        return await _page(request, form, started)
    return see_other(request, f"/evaluations/{started.id}", flash="Started: its answers appear as they come.")


async def _page(request: Request, form: Form, estimate: EvaluationStarted | None) -> Response:
    client = client_of(request)
    agents, datasets = await asyncio.gather(agent_choices(client), client.datasets.list(limit=MAX_DATASETS))
    return render(
        request,
        "evaluations/new.html",
        status=422 if form.problem else 200,
        form=form,
        agents=agents,
        datasets=[(one.name, f"{one.name}, examples: {one.examples:,}") for one in datasets.items],
        plain=_PLAIN,
        estimate=estimate,
    )


def _fields(form: Form) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: form.given(name)
        for name in ("agent", "version", "against", "dataset", "split", "budget_usd", "threshold")
    }
    return given | {
        "repeats": form.given("repeats") or 1,
        "tags": words_in(form.value("tags")),
        "evaluators": evaluators_of(form),
        "tools": {"missing": form.given("missing") or "fail", "live": words_in(form.value("live"))},
    }


def evaluators_of(form: Form) -> list[Any]:
    """Return the evaluators that a form names: ticked ones, those with a bound, the judge, and others as JSON.

    Raises:
        InvalidInput: The others are no list of JSON.
    """
    found: list[Any] = [{"kind": kind} for kind, _ in _PLAIN if kind in form.list("evaluators")]
    found += [
        {"kind": kind, bound: form.given(f"bound-{kind}")} for kind, bound in _BOUNDS if form.given(f"bound-{kind}")
    ]
    if form.given("judge_budget_usd"):
        judge = {"kind": "judge", "budget_usd": form.given("judge_budget_usd"), "rubric": form.given("judge_rubric")}
        found.append(judge)
    others = form.given("others")
    if others is not None:
        try:
            listed: Any = json.loads(others)
        except ValueError as error:
            raise InvalidInput(f"It is no JSON: {error}", field="others") from error
        if not isinstance(listed, list):
            raise InvalidInput('It is no list, such as [{"kind": "steps", "at_most": 5}].', field="others")
        found += listed
    return found
