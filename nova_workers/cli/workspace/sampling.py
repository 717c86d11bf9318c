"""`nova sampling`: a model judges a share of the live runs of an agent."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.output import Facts, Output, money
from nova_workers.cli.workspace.agents import AgentArgument
from nova_workers.contracts.http.sampling import SamplingPut, SamplingView

app = group("Let a model judge a share of the live runs of an agent.")


@remote(app, "set")
async def set_(
    session: Session,
    agent: AgentArgument,
    percent: Annotated[float, typer.Option(min=0.01, max=100, help="The share of the runs that succeed.")],
    rubric: Annotated[str, typer.Option(help="What a good answer has.")],
    budget: Annotated[float, typer.Option(help="Dollars of a day for the judge.")],
    model: Annotated[str | None, typer.Option(help="The judge's model; else the fleet's default.")] = None,
    engine: Annotated[str | None, typer.Option(help="The judge's engine; else the fleet's default.")] = None,
    lowest: Annotated[int | None, typer.Option(help="The score of the worst answer; else 1.")] = None,
    highest: Annotated[int | None, typer.Option(help="The score of the best answer; else 5.")] = None,
) -> None:
    """Begin to judge live runs of an agent, or change how."""
    judge = given(rubric=rubric, budget_usd=budget, model=model, engine=engine, lowest=lowest, highest=highest)
    body = build(SamplingPut, given(percent=percent, judge=judge))
    session.out.write(await session.client.sampling.put(agent, body), _show)


@remote(app, "show")
async def show(session: Session, agent: AgentArgument) -> None:
    """Show what is judged of an agent, with its scores over the last 30 days."""
    session.out.write(await session.client.sampling.get(agent), _show)


@remote(app, "stop")
async def stop(session: Session, agent: AgentArgument) -> None:
    """Judge no more live runs of an agent. Its scores stay."""
    await session.client.sampling.delete(agent)
    session.out.note(f"Live runs of {agent} are judged no more.")


def _show(out: Output, sampling: SamplingView) -> None:
    out.facts(_facts(sampling))
    if sampling.periods:
        out.table(
            ("day", "version", "judged", "not judged", "mean score"),
            [
                (
                    one.day.isoformat(),
                    "" if one.version is None else str(one.version),
                    f"{one.judged:,}",
                    f"{one.not_judged:,}",
                    "" if one.mean_score is None else f"{one.mean_score:.3f}",
                )
                for one in sampling.periods
            ],
        )


def _facts(sampling: SamplingView) -> Facts:
    yield "agent", sampling.agent
    yield "judged", f"{sampling.percent:g} % of the runs that succeed"
    yield "rubric", sampling.judge.rubric
    yield "model", sampling.judge.model
    yield "today", f"{money(sampling.spent_today_usd)} of {money(sampling.judge.budget_usd)}"
    yield "waiting", sampling.open
    if sampling.drift is not None:
        drift = sampling.drift
        yield "drift", f"{drift.found_at:%Y-%m-%d %H:%M} UTC: from {drift.before:.3f} to {drift.after:.3f}"
