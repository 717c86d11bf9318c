"""`nova rollout`: a version of an agent takes over its conversations in steps."""

from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import Argument, group, listing
from nova_workers.cli.terminal.output import Facts, Output, money
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.cli.workspace.agents import AgentArgument
from nova_workers.contracts.http.rollouts import (
    GuardrailState,
    RolloutReport,
    RolloutStart,
    RolloutView,
    VersionFigures,
)
from nova_workers.contracts.rollout_steps import parse_step

app = group("Roll out a version of an agent in steps.")


@remote(app, "start")
async def start(
    session: Session,
    agent: AgentArgument,
    version: Annotated[int, typer.Option("--version", min=1, help="The candidate: a version that is not current.")],
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="N%[:TIME[:approval]]", help="A share, and how long: 10%:6h; may be repeated."),
    ] = None,
    guardrail: Annotated[
        list[str] | None,
        typer.Option("--guardrail", metavar="MEASURE[:TOLERANCE]", help="failure, cost, latency, feedback or judge."),
    ] = None,
    no_guardrails: Annotated[bool, typer.Option("--no-guardrails", help="Leaves stopping it to people.")] = False,
    min_runs: Annotated[int | None, typer.Option(min=0, help="Ended runs of the candidate that a step needs.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="NAME=VALUE", help="Only runs with this metadata; may be repeated."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only threads that this API key began.")] = None,
    shadow: Annotated[
        str | None,
        typer.Option(metavar="N%:USD", help="Lets the candidate answer so many other turns, too, unseen: 10%:5."),
    ] = None,
) -> None:
    """Begin to give an agent's conversations to another version."""
    wanted: dict[str, Any] = given(
        version=version,
        steps=[parse_step(each) for each in step] if step else None,
        guardrails=[] if no_guardrails else [_guardrail(each) for each in guardrail] if guardrail else None,
        min_runs=min_runs,
        metadata=dict(_pair(each) for each in metadata) if metadata else None,
        key_id=key,
        shadow=None if shadow is None else _shadow(shadow),
    )
    session.out.record(await session.client.rollouts.start(agent, build(RolloutStart, wanted)), _facts)


@remote(app, "status")
async def status(session: Session, agent: AgentArgument) -> None:
    """Show the newest rollout of an agent, with the figures of both versions."""
    session.out.write(await session.client.rollouts.report(agent), _show)


@remote(app, "advance")
async def advance(
    session: Session,
    agent: AgentArgument,
    step: Annotated[int | None, typer.Option("--from", min=1, help="Refuses if it is at another step.")] = None,
) -> None:
    """Begin the next step now; after the last one, make the candidate the current version."""
    at = step - 1 if step else (await session.client.rollouts.report(agent)).rollout.step
    session.out.record(await session.client.rollouts.advance(agent, at), _facts)


@remote(app, "stop")
async def stop(
    session: Session,
    agent: AgentArgument,
    reason: Annotated[str | None, typer.Option(help="Why, for people.")] = None,
) -> None:
    """Stop a rollout: each thread continues with the current version."""
    session.out.record(await session.client.rollouts.stop(agent, reason), _facts)


listing(
    app,
    "List the rollouts of an agent, newest first.",
    lambda nova: nova.rollouts.list,
    Rows[RolloutView](
        "No rollouts.",
        Column("id", lambda one: one.id),
        Column("version", lambda one: one.version),
        Column("status", lambda one: one.status),
        Column("share", lambda one: f"{one.percent:g} %"),
        Column("began", lambda one: one.created_at, "spare"),
        Column("ended", lambda one: one.ended_at, "spare"),
        Column("reason", lambda one: one.reason, "fold"),
    ),
    of=Argument("agent", AgentArgument),
)


def _guardrail(text: str) -> dict[str, Any]:
    measure, has_tolerance, tolerance = text.partition(":")
    return {"measure": measure, **({"tolerance": tolerance} if has_tolerance else {})}


def _shadow(text: str) -> dict[str, Any]:
    percent, has_budget, budget = text.partition(":")
    if not has_budget:
        raise InvalidInput(f"--shadow: {text!r} has no budget; write a share and dollars, such as 10%:5.")
    return {"percent": percent.removesuffix("%"), "budget_usd": budget}


def _pair(text: str) -> tuple[str, str]:
    name, has_value, value = text.partition("=")
    if not has_value:
        raise InvalidInput(f"--metadata: {text!r} has no value; write NAME=VALUE.")
    return name, value


def _facts(rollout: RolloutView) -> Facts:
    yield "rollout", rollout.id
    yield "version", f"{rollout.version}, beside {rollout.baseline_version}"
    yield "status", rollout.status
    yield "step", f"{rollout.step + 1} of {len(rollout.steps)}: {rollout.percent:g} %"
    yield "step ends", rollout.step_ends_at
    if rollout.shadow is not None:
        yield "shadow", f"{rollout.shadow.percent:g} % of turns: nova evals show {rollout.shadow.evaluation}"
    yield "reason", rollout.reason
    yield "ended", rollout.ended_at


def _show(out: Output, report: RolloutReport) -> None:
    out.facts(_facts(report.rollout))
    out.table(
        ("version", "runs", "failed", "cost", "duration", "rated", "score"),
        [_row(report.candidate), _row(report.baseline)],
    )
    if report.guardrails:
        out.table(("guardrail", "values", "p", "stops at", "next look"), [_look(one) for one in report.guardrails])


def _look(state: GuardrailState) -> tuple[str, ...]:
    p_value, threshold = (f"{state.last.p_value:.2g}", f"{state.last.threshold:.2g}") if state.last else ("", "")
    return state.measure, str(state.values), p_value, threshold, str(state.next_look or "")


def _row(figures: VersionFigures) -> tuple[str, ...]:
    cost, latency, score = figures.mean_cost_usd, figures.mean_latency_s, figures.mean_score
    return (
        str(figures.version),
        str(figures.runs),
        str(figures.failed),
        "" if cost is None else money(cost),
        "" if latency is None else f"{latency:.2f} s",
        str(figures.rated),
        "" if score is None else f"{score:+.2f}",
    )
