"""An agent's rollouts: how both versions compare, over time and at the guardrails; start, advance and stop."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Conflict, InvalidInput, NotFound, Rejected
from nova_workers.base.vocabulary import OPEN_ROLLOUTS, GuardrailMeasure
from nova_workers.client.client import NovaClient
from nova_workers.client.resources.rollouts import Rollouts
from nova_workers.console.actions import Done, act
from nova_workers.console.drawing.rollouts import describe_guardrail, plots_of
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.rollouts import GUARDRAILS, STEPS, RolloutStart, RolloutStop, RolloutView
from nova_workers.contracts.rollout_steps import parse_step, write_step

_VERSIONS = 100
"""How many of the newest versions a rollout is chosen from."""
_USUAL: Final[dict[GuardrailMeasure, float]] = {one.measure: one.tolerance for one in GUARDRAILS}
_TOLERANCES: Final[dict[GuardrailMeasure, float]] = {**_USUAL, "judge": 0.1}
"""The judge's score needs a sampling of the agent, so it is ticked by people."""


async def show_list(request: Request) -> Response:
    """List the rollouts of an agent, newest first."""
    client, agent_id = client_of(request), request.path_params["agent"]
    agent, page = await asyncio.gather(
        client.agents.get(agent_id), client.rollouts.list(agent_id, limit=PAGE_SIZE, cursor=cursor_of(request))
    )
    has_open = not cursor_of(request) and any(_is_open(one) for one in page.items)
    return render(
        request,
        "agents/rollouts.html",
        agent=agent,
        rollouts=page.items,
        has_open=has_open,
        pager=pager(request, page),
    )


async def show(request: Request) -> Response:
    """Show a rollout: both versions side by side, its steps, its guardrails, and why it ended."""
    client, agent_id = client_of(request), request.path_params["agent"]
    agent, history = await asyncio.gather(
        client.agents.get(agent_id), client.rollouts.history(agent_id, request.path_params["rollout"])
    )
    rollout = history.rollout
    return render(
        request,
        "agents/rollout.html",
        agent=agent,
        rollout=rollout,
        is_open=_is_open(rollout),
        is_last=rollout.step + 1 == len(rollout.steps),
        candidate=history.candidate,
        baseline=history.baseline,
        guardrails=[(one, describe_guardrail(one, rollout)) for one in history.guardrails],
        plots=plots_of(history),
        now=state_of(request).clock.now(),
    )


async def new(request: Request) -> Response:
    """Show the form of a new rollout, and begin one."""
    client, agent_id, form = client_of(request), request.path_params["agent"], Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            rollout = await client.rollouts.start(agent_id, _start_of(form))
        except NotFound:
            raise
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(
                request, f"/agents/{agent_id}/rollouts/{rollout.id}", flash=f"Version {rollout.version} is rolled out."
            )
    agent = await client.agents.get(agent_id)
    return render(
        request,
        "agents/rollout_new.html",
        status=422 if form.problem else 200,
        agent=agent,
        versions=await other_versions(client, agent_id, agent.version),
        version=request.query_params.get("version", ""),
        form=form,
        steps="\n".join(write_step(step) for step in STEPS),
        guardrails=[(measure, measure in _chosen(form), _TOLERANCES[measure]) for measure in _TOLERANCES],
    )


async def advance(request: Request) -> Response:
    """Begin the next step of the open rollout, if it is at the one that the page showed."""
    agent_id, form = request.path_params["agent"], await read_form(request)
    step = form.value("step")
    if not step.isdecimal():
        raise InvalidInput(f"There is no step {step!r}.", field="step")
    calls = client_of(request).rollouts

    async def advanced() -> RolloutView:
        await _check_is_newest(calls, request)
        return await calls.advance(agent_id, int(step))

    return await act(request, _address(request), advanced, _advanced)


async def stop(request: Request) -> Response:
    """Stop the open rollout."""
    agent_id, form = request.path_params["agent"], await read_form(request)
    calls = client_of(request).rollouts

    async def stopped() -> RolloutView:
        await _check_is_newest(calls, request)
        return await calls.stop(agent_id, build(RolloutStop, {"reason": form.given("reason")}).reason)

    done = "Stopped. Each conversation goes on with the current version."
    return await act(request, _address(request), stopped, done)


async def _check_is_newest(calls: Rollouts, request: Request) -> None:
    """Refuse a button of an earlier rollout's page, which would change the one that is open now."""
    newest = await calls.list(request.path_params["agent"], limit=1)
    if [one.id for one in newest.items] != [request.path_params["rollout"]]:
        raise Conflict("This rollout has ended, and the agent has had another one since.")


async def other_versions(client: NovaClient, agent_id: str, current: int) -> list[tuple[str, str]]:
    """Return the newest versions of an agent but one, as choices of a field."""
    page = await client.agents.versions(agent_id, limit=_VERSIONS)
    return [(str(one.version), f"Version {one.version}") for one in page.items if one.version != current]


def _start_of(form: Form) -> RolloutStart:
    lines = [line for line in form.value("steps").splitlines() if line.strip()]
    return build(
        RolloutStart,
        {
            "version": form.given("version") or 0,
            "steps": [parse_step(line) for line in lines],
            "guardrails": [
                {"measure": measure, "tolerance": form.given(f"tolerance-{measure}") or 0}
                for measure in _chosen(form)
                if measure in _TOLERANCES
            ],
            "min_runs": form.given("min_runs") or 0,
            "shadow": {"percent": form.given("shadow_percent"), "budget_usd": form.given("shadow_budget_usd") or 0}
            if form.given("shadow_percent")
            else None,
            "metadata": dict(_pair(line) for line in form.value("metadata").splitlines() if line.strip()),
        },
    )


def _chosen(form: Form) -> tuple[str, ...]:
    """Return the measures that are ticked; of a form that was not sent, the usual ones."""
    return form.list("guardrails") if form.values else tuple(_USUAL)


def _pair(line: str) -> tuple[str, str]:
    name, has_value, value = line.partition("=")
    if not has_value:
        raise InvalidInput(f"{line!r} has no value; write NAME=VALUE.", field="metadata")
    return name.strip(), value.strip()


def _advanced(rollout: RolloutView) -> Done:
    if rollout.status == "promoted":
        return Done(f"Version {rollout.version} is the current version.")
    if _is_open(rollout):
        return Done(f"Version {rollout.version} has {rollout.percent:g} % of the conversations.")
    return Done(rollout.reason, kind="warn")


def _address(request: Request) -> str:
    return f"/agents/{request.path_params['agent']}/rollouts/{request.path_params['rollout']}"


def _is_open(rollout: RolloutView) -> bool:
    return rollout.status in OPEN_ROLLOUTS
